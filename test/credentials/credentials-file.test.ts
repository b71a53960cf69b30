import { appendFile, chmod, mkdir, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t from 'tap'
import { listCredentialsFile, loadCredentialsFile } from '../../src/credentials/credentials-file.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const HASH = `$sha256$${'A'.repeat(43)}`

/** Writes so many credentials, ten to an account. */
async function manyCredentials(t: { teardown(end: () => unknown): void }, count: number): Promise<string> {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const lines = ['accounts:']
  for (let at = 0; at < count; at++) {
    if (at % 10 === 0) lines.push(`  - accountId: account-${at / 10}`, '    credentials:')
    lines.push(`      - accessKey: AK${at}`, `        secretHash: ${HASH}`)
  }
  await writeFile(file, `${lines.join('\n')}\n`, { mode: 0o600 })
  return file
}

t.test('a valid file gives its credentials', async (t) => {
  const { file } = await makeCredentialsFile(t, [{ accountId: 'acme' }, { accountId: 'other' }])
  const listed = await listCredentialsFile(file)
  t.match(listed, { ok: true, value: [{ accountId: 'acme' }, { accountId: 'other' }], warnings: [] })
  const loaded = await loadCredentialsFile(file)
  t.match(loaded.ok && loaded.value.find({ accountId: 'acme', accessKey: 'AK0' }), { disabled: false })
})

t.test('a world-readable file is worth a warning', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await chmod(file, 0o640)
  t.match(await loadCredentialsFile(file), { ok: true, warnings: [] })
  await chmod(file, 0o644)
  t.match(await loadCredentialsFile(file), {
    warnings: [`${file} can be read by every user of this machine`],
  })
})

t.test('5,000 credentials are loaded while the event loop keeps turning', async (t) => {
  const file = await manyCredentials(t, 5000)
  await loadCredentialsFile(file) // the first worker compiles its modules
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  const began = performance.now()
  const loaded = await loadCredentialsFile(file)
  const ms = performance.now() - began
  delay.disable()
  if (!loaded.ok) throw new Error(loaded.problems.join())
  t.equal(loaded.value.size, 5000)
  t.ok(loaded.value.find({ accountId: 'account-499', accessKey: 'AK4999' }))
  const stall = delay.max / 1e6
  t.comment(`${ms.toFixed(0)} ms, longest stall ${stall.toFixed(1)} ms`)
  t.ok(stall < 50 || stall < ms / 4, `stalled ${stall} of ${ms} ms`)
})

t.test('problems of a small and of a large file begin with the path and the place', async (t) => {
  const { file } = await makeCredentialsFile(t)
  await appendFile(file, 'more: 1\n')
  const problems = [`${file}:6:1: has a member that is not known here: more`]
  t.same(await loadCredentialsFile(file), { ok: false, problems })
  t.same(await listCredentialsFile(file), { ok: false, problems })
  const large = await manyCredentials(t, 1000)
  await appendFile(large, 'more: 1\n')
  t.same(await loadCredentialsFile(large), {
    ok: false,
    problems: [`${large}:2202:1: has a member that is not known here: more`],
  })
})

t.test('an unreadable file is a problem in plain words', async (t) => {
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const problem = async () => {
    const loaded = await loadCredentialsFile(file)
    return loaded.ok ? [] : loaded.problems
  }
  t.same(await problem(), [`${file}: cannot be read: there is no such file or directory`])
  await writeFile(file, '')
  await truncate(file, 16_777_217)
  t.same(await problem(), [`${file}: is larger than 16777216 bytes`])
  await mkdir(`${file}.d`)
  t.match(await loadCredentialsFile(`${file}.d`), { problems: [`${file}.d: is not a file`] })
})
