import t from 'tap'
import { nameProblem } from '../../src/base/values.ts'
import { credentialOfUser } from '../../src/endpoints/user-name.ts'

const owners = new Map([
  ['AK1', 'acme'],
  ['back~up', 'globex'],
])
const logins = { accountOf: (accessKey: string) => owners.get(accessKey) }

t.test('an access key that one credential has is enough', async (t) => {
  t.same(credentialOfUser('AK1', logins), { accountId: 'acme', accessKey: 'AK1' })
  t.same(credentialOfUser('back~up', logins), { accountId: 'globex', accessKey: 'back~up' })
})

t.test('otherwise account and access key are split at the last tilde', async (t) => {
  t.same(credentialOfUser('acme~AK1', logins), { accountId: 'acme', accessKey: 'AK1' })
  t.same(credentialOfUser('a~b~AK1', logins), { accountId: 'a~b', accessKey: 'AK1' })
  t.same(credentialOfUser('none~AK9', logins), { accountId: 'none', accessKey: 'AK9' })
  t.same(credentialOfUser('~~AK9', logins), { accountId: '~', accessKey: 'AK9' })
})

t.test('any other name has an account of its own that cannot exist', async (t) => {
  const names = ['AK9', '~AK1', 'acme~', '~', '~~', '']
  const found = names.map((name) => credentialOfUser(name, logins))
  for (const { accountId } of found) {
    t.type(nameProblem(accountId), 'string')
  }
  t.equal(new Set(found.map(({ accountId }) => accountId)).size, names.length)
})
