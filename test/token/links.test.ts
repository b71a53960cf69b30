/** The parts of a link: its parameter, its target, its id. */
import t from 'tap'
import { createLinkId, isLinkId, isLinkOf, takeLinkParameter } from '../../src/token/links.ts'

t.test('takes the parameter and one separator out of a target, and changes no other byte', async (t) => {
  const rows: readonly (readonly [string, string | undefined, string?])[] = [
    ['/a?link_token=J', '/a', 'J'],
    ['/a?link_token=J&b=1', '/a?b=1', 'J'],
    ['/a?b=1&link_token=J', '/a?b=1', 'J'],
    ['/a?b=1&link_token=J&c', '/a?b=1&c', 'J'],
    ['/a?b=%2f;x&link_token=J&c=?%C3%a4', '/a?b=%2f;x&c=?%C3%a4', 'J'],
    ['/a?link_token=', '/a', ''],
    ['/a?link_token', '/a', ''],
    ['/a', undefined],
    ['/link_token=J', undefined],
    ['/a?xlink_token=J', undefined],
    ['/a?b=link_token=J', undefined],
    ['/a?b;link_token=J', undefined],
    ['/a?link%5ftoken=J', undefined],
    ['/a?LINK_TOKEN=J', undefined],
    ['/a?link_tokens=J', undefined],
  ]
  for (const [target, rest, token] of rows)
    t.same(takeLinkParameter(target), rest === undefined ? undefined : { token, target: rest }, target)
  for (const target of ['/a?link_token=J&link_token=J', '/a?link_token&b&link_token=J'])
    t.equal(takeLinkParameter(target), 'several', target)
})

t.test('an id names its maker and no other account', async (t) => {
  const id = createLinkId('acme')
  t.ok(isLinkId(id))
  t.ok(isLinkOf(id, 'acme'))
  t.notOk(isLinkOf(id, 'Acme'))
  t.not(createLinkId('acme'), id)
  for (const other of ['', id.slice(1), `${id}x`, `${id.slice(1)}.`, '../token'])
    t.notOk(isLinkId(other), other)
})
