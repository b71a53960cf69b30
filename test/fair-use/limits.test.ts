import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadLimits } from '../../src/fair-use/limits.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const ENFORCED = { processes: 1, enforcement: 'enforce' } as const

/** The problems of a file with this text, without its path. */
async function problemsOf(t: Test, text: string | Uint8Array): Promise<readonly string[]> {
  const file = join(await temporaryDirectory(t), 'fair-use.yaml')
  writeFileSync(file, text)
  const loaded = await loadLimits(file, ENFORCED)
  return loaded.ok ? [] : loaded.problems.map((problem) => problem.replace(`${file}:`, ''))
}

const RATE = 'must be 0 (no limit) or a number from 1/86400 (one a day) to 1000000'

t.test('a bad file is refused with line and column, and every problem of it', async (t) => {
  for (const [text, problems] of [
    ['', ['1:1: must be a map of default and accounts']],
    ['[]', ['1:1: must be a map of default and accounts']],
    ['default: 5', [/^1:10: default must be a map of requestsPerSecond, burst, /]],
    ['default: { requestsPerSecond: -1 }', [`1:31: default.requestsPerSecond ${RATE}`]],
    ['default: { requestsPerSecond: 0.0000115 }', [`1:31: default.requestsPerSecond ${RATE}`]],
    ['default: { requestsPerSecond: 1e7 }', [`1:31: default.requestsPerSecond ${RATE}`]],
    ['default: { requestsPerSecond: .inf }', [/requestsPerSecond must be/]],
    ['default: { requestsPerSecond: .nan }', [/requestsPerSecond must be/]],
    ['default: { requestsPerSecond: "5" }', [/requestsPerSecond must be/]],
    ['default: { burst: 1.5 }', [/burst must be an integer from 0 to 1000000/]],
    ['default: { inFlight: -1 }', [/inFlight must be an integer/]],
    ['default: { uploadBytesPerSecond: 1e13 }', [/uploadBytesPerSecond must be an integer/]],
    ['default: { downloadBytesPerSecond: 0.5 }', [/downloadBytesPerSecond must be an integer/]],
    ['accounts: [acme]', [/^1:11: accounts must be a map from accounts to their limits/]],
    ['accounts: { "": { burst: 1 } }', [/is the limit of an account that must be 1 to 1024 characters/]],
    ['accounts: { __proto__: { burst: 1 } }', [/must not contain __proto__/]],
    ['default: { burst: 1, burst: 2 }', [/Map keys must be unique/]],
    ['default: {', [/is not valid YAML/]],
    [Buffer.from([0xff]), ['1:1: is not UTF-8 text']],
    ['#'.repeat(262_145), [/is larger than 262144 bytes/]],
    [
      'defaults: {}\naccounts:\n  acme: { bust: 1 }',
      [/^1:1: .*: defaults/, /^3:11: accounts\.acme .*: bust/],
    ],
  ] as const) {
    t.match(await problemsOf(t, text), problems, String(text).slice(0, 50))
  }
  t.equal((await problemsOf(t, 'default: { requestsPerSecond: 0.00001158 }')).length, 0, 'one a day')
  t.equal((await problemsOf(t, 'default: { burst: 1e20 }')).length, 1, 'told once')
})

t.test('limits are those of the account, then those of all; 0 and an empty map are no limit', async (t) => {
  const file = join(await temporaryDirectory(t), 'fair-use.yaml')
  writeFileSync(
    file,
    'default: { inFlight: 5, requestsPerSecond: 0.3 }\naccounts: { a: { inFlight: 0 }, b: { inFlight: 7 }, c: { inFlight: 0, requestsPerSecond: 0 } }',
  )
  const loaded = await loadLimits(file, ENFORCED)
  if (!loaded.ok) {
    throw new Error(loaded.problems.join())
  }
  const limits = loaded.value
  t.match(limits.of('other'), { inFlight: 5, requests: { burst: 1 } })
  t.match(limits.of('a'), { inFlight: Number.POSITIVE_INFINITY, requests: { burst: 1 } })
  t.match(limits.of('b'), { inFlight: 7 })
  t.equal(limits.of('c'), undefined)
  t.strictSame(limits.accountIds, ['a', 'b', 'c'])
  writeFileSync(file, '{}')
  const empty = await loadLimits(file, ENFORCED)
  t.equal(empty.ok && empty.value.of('a'), undefined)
})
