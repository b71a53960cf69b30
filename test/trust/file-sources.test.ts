import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { accountsIn, keysIn, problemsOf, revocationsIn } from '../../src/trust/file-sources.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { makeKeyDirectory } from '../support/keys.ts'

t.test('each file is loaded, with what should be mended, under the setting that names it', async (t) => {
  const { directory, kid } = await makeKeyDirectory(t)
  writeFileSync(join(directory, 'note.txt'), '')
  const keys = keysIn(directory)
  const ring = await keys.load()
  t.match(ring, { ok: true, value: { signing: { kid } }, warnings: [/note\.txt: passed over/] })
  t.strictSame(problemsOf(keys, ring), [])

  const { file } = await makeCredentialsFile(t, [{ accountId: 'acme', accessKey: 'AK0' }])
  const accounts = await accountsIn(file).load()
  if (!accounts.ok) throw new Error(accounts.problems.join())
  t.match(accounts.value.find('acme', 'AK0'), { accessKey: 'AK0' })

  const none = revocationsIn({ file: join(directory, 'none.yaml'), required: false })
  t.match(await none.load(), { ok: true, value: { size: 0 } })
})

t.test('what cannot be used is a problem of its setting', async (t) => {
  const missing = join(t.testdir(), 'missing')
  for (const [source, setting] of [
    [keysIn(missing), 'keys.directory'],
    [accountsIn(missing), 'credentials.file'],
    [revocationsIn({ file: missing, required: true }), 'revocations.file'],
  ] as const) {
    t.match(problemsOf(source, await source.load()), [{ path: setting, message: missing, origin: 'default' }])
  }
})
