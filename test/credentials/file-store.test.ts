import t from 'tap'
import { makeCredentialsFile } from '../support/credentials.ts'
import { loadFileStore } from '../support/file-store.ts'

const now = () => Date.parse('2027-01-01T00:00:00Z')

t.test('a loaded store accepts the logins of its file and no others', async (t) => {
  const { file, logins } = await makeCredentialsFile(t, [
    { accountId: '__proto__', secret: ' pass\tword ' },
    { scheme: 'scrypt', secret: 'é'.normalize('NFC') },
    { expiresAt: '2027-01-01T00:00:00Z' },
    { disabled: true },
  ])
  const loaded = await loadFileStore({ file, now })
  if (!loaded.ok) throw new Error(loaded.problems.join())
  t.same(loaded.warnings, [])
  const verdicts: string[] = []
  for (const login of logins) verdicts.push(await loaded.store.authenticate(login))
  t.same(verdicts, ['accepted', 'accepted', 'rejected', 'rejected'])
  const decomposed = { accountId: 'acme', accessKey: 'AK1', secret: 'é'.normalize('NFD') }
  t.equal(await loaded.store.authenticate(decomposed), 'rejected')
  t.same(loaded.store.standing('acme', 'AK1'), { inForce: true, until: Number.POSITIVE_INFINITY })
})

t.test('a store without accounts is fine and accepts nobody', async (t) => {
  const { file } = await makeCredentialsFile(t, [])
  const loaded = await loadFileStore({ file, now })
  t.equal(
    loaded.ok && (await loaded.store.authenticate({ accountId: 'a', accessKey: 'b', secret: 'c' })),
    'rejected',
  )
})
