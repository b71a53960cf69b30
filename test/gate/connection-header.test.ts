import t from 'tap'
import { nominate } from '../../src/gate/connection-header.ts'

t.test('the names of all lines are hop-by-hop, in any case', async (t) => {
  const first = nominate(undefined, 'Keep-Alive, X-One,,')
  t.same([...(nominate(first, ' x-two ') ?? [])], ['keep-alive', 'x-one', 'x-two'])
})

t.test('what must arrive cannot be nominated', async (t) => {
  for (const name of [
    'host',
    'Authorization',
    'content-length',
    'Transfer-Encoding',
    'content_length',
    'x-authenticated-account-id',
  ])
    t.equal(nominate(undefined, `close, ${name}`), undefined, name)
})
