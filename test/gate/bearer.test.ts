import t from 'tap'
import { bearerToken } from '../../src/gate/bearer.ts'

t.test('a token follows the scheme in any case and one or more spaces', async (t) => {
  for (const authorization of [
    'Bearer a.b.c',
    'bearer a.b.c',
    'BEARER a.b.c',
    'bEaReR  a.b.c',
    'Bearer     a.b.c',
  ])
    t.same(bearerToken(authorization), { token: 'a.b.c' }, authorization)
  t.same(bearerToken('Bearer a'), { token: 'a' }, 'one character is enough to be looked at')
})

t.test('no header at all is another reason than a header that holds no bearer token', async (t) => {
  t.same(bearerToken(undefined), { token: undefined, reason: 'missing' })
  for (const authorization of [
    '',
    ' ',
    'Bearer',
    'Bearer ',
    'Bearer   ',
    'Beare a.b.c',
    'Bearer\ta.b.c',
    'Bearer\u00a0a.b.c',
    'Bearera.b.c',
    'Bearer=a.b.c',
    'Bearers a.b.c',
    ' Bearer a.b.c',
    'Basic dXNlcjpwYXNz',
    'Digest username="a"',
    'Bearex a.b.c',
    'Token a.b.c',
    'a.b.c',
    '"Bearer" a.b.c',
  ]) {
    t.same(
      bearerToken(authorization),
      { token: undefined, reason: 'malformed' },
      JSON.stringify(authorization),
    )
  }
})

t.test('what follows is handed on whole, so that no list can hide a second token', async (t) => {
  for (const rest of ['a, Bearer b', 'a,b', 'a b', 'a\tb', 'Bearer a'])
    t.same(bearerToken(`Bearer ${rest}`), { token: rest })
})
