import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createRevocationsLoader } from '../../src/token/revocations-file.ts'

const token = { tokenId: 'abcdef', accountId: 'acme', accessKey: 'AK', issuedAt: 1 }

t.test('a file is loaded anew each time', async (t) => {
  const file = join(t.testdir({ file: 'revocations: []' }), 'file')
  const load = createRevocationsLoader({ file, required: true })
  t.match(await load(), { ok: true, value: { size: 0 }, warnings: [] })
  writeFileSync(file, '\uFEFFrevocations:\n- jti: abcdef\n')
  const loaded = await load()
  t.equal(loaded.ok && loaded.value.size, 1)
  t.equal(loaded.ok && loaded.value.isRevoked(token), true)
})

t.test('a file that nobody named may be missing, until it has been there once', async (t) => {
  const file = join(t.testdir({}), 'file')
  const missing = { ok: false, problems: [`${file}: cannot be read: there is no such file or directory`] }
  t.same(await createRevocationsLoader({ file, required: true })(), missing)
  const load = createRevocationsLoader({ file, required: false })
  for (const _again of [1, 2]) t.match(await load(), { ok: true, value: { size: 0 } })
  writeFileSync(file, 'revocations: bad')
  t.match(await load(), { ok: false })
  rmSync(file)
  t.same(await load(), missing, 'a bad file was one, too')
})

t.test('what is no file of revocations is told with the path, and never waited for', async (t) => {
  const directory = t.testdir({ empty: '', bad: 'revocations:\n- jti: 1\n- 2\n' })
  const path = (name: string) => join(directory, name)
  mkdirSync(path('directory'))
  execFileSync('mkfifo', [path('pipe')])
  writeFileSync(path('latin1'), Buffer.from('revocations: [{ jti: caf\xe9 }]', 'latin1'))
  writeFileSync(path('huge'), '')
  truncateSync(path('huge'), 33_554_433)
  for (const [name, problems] of Object.entries({
    empty: [/:1:1: is empty/],
    bad: [/:2:8: .+must be a string/, /:3:3: .+must be a map/],
    directory: [/: is not a file$/],
    pipe: [/: is not a file$/],
    latin1: [/: is not UTF-8 text$/],
    huge: [/: is larger than/],
    'bad/below': [/there is no such file/],
  })) {
    const loaded = await createRevocationsLoader({ file: path(name), required: name !== 'bad/below' })()
    t.match(loaded, { ok: false, problems }, name)
    t.ok(!loaded.ok && loaded.problems.every((problem) => problem.startsWith(path(name))), name)
  }
})
