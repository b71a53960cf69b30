import t from 'tap'
import { expectedRequests } from './expected-requests.ts'
import { readFields } from './http-grammar.ts'
import { bodyProblem, encodedIdentity, headProblem, type SeenRequest } from './upstream-invariants.ts'

const identity = { accountId: 'ä b', accessKey: 'k', tokenId: 't', expiresAt: 9 }
const trust = { valid: new Map([['good', identity]]), expired: new Set<string>(), logins: [] }

function expected(lines: string, body = '') {
  const [request] = expectedRequests(
    `PUT /x?y HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer good\r\n${lines}\r\n${body}`,
    trust,
  )
  if (request === undefined) throw new Error('no request')
  return request
}

const OURS =
  'X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Host: s\r\nForwarded: for=127.0.0.1\r\n' +
  'X-Authenticated-Account-Id: %C3%A4%20b\r\nX-Authenticated-Access-Key: k\r\nX-Authenticated-Token-Id: t\r\nX-Authenticated-Token-Expires: 9\r\n'
const ID = 'X-Request-Id: 12345678-1234-1234-1234-123456789abc\r\n'

function seen(lines: string, changed: Partial<SeenRequest> = {}): SeenRequest {
  const read = readFields(`${lines}\r\n`, 0)
  if (typeof read !== 'object') throw new Error('bad lines')
  return {
    method: 'PUT',
    target: '/x?y',
    fields: read.fields,
    framing: 'none',
    body: '',
    trailers: [],
    ...changed,
  }
}

const problem = (client: string, upstream: string, changed?: Partial<SeenRequest>) =>
  headProblem(seen(upstream, changed), expected(client), false)

t.test('a request that was forwarded as it must be has no problem', async (t) => {
  t.equal(problem('A: 1\r\na: 2\r\n', `Host: s\r\nA: 1\r\na: 2\r\n${ID}${OURS}`), undefined)
  t.equal(
    problem('X-Request-Id: mine\r\nb:\r\n', `Host: s\r\nX-Request-Id: mine\r\nb: \r\n${OURS}`),
    undefined,
  )
  const dropped =
    'X_Authenticated.Account-Id: evil\r\nTE: trailers\r\nConnection: x\r\nX: 1\r\nForwarded: for=1\r\n'
  t.equal(problem(dropped, `Host: s\r\n${ID}${OURS}`), undefined)
  t.equal(
    problem('Expect: 100-continue\r\nX~Forwarded-For: 1\r\n', `Host: s\r\n${ID}${OURS}`),
    undefined,
    'may go',
  )
})

t.test('every way in which the header can be wrong is seen', async (t) => {
  const plain = `Host: s\r\n${ID}${OURS}`
  for (const [client, upstream, changed] of [
    ['', plain, { method: 'POST' }],
    ['', plain, { target: '/x' }],
    ['', plain, { framing: 'chunked' }],
    ['', plain.replace('%C3%A4%20b', 'other')],
    ['', plain.replace(/X-Authenticated-Token-Id.*\r\n/, '')],
    ['', `${plain}x-authenticated-account-id: %C3%A4%20b\r\n`],
    ['', `${plain}X_Authenticated_Account_Id: evil\r\n`],
    ['', `${plain}Authorization: Bearer good\r\n`],
    ['', `${plain}Transfer_Encoding: chunked\r\n`],
    ['', `${plain}Content.Length: 3\r\n`],
    ['', plain.replace('X-Forwarded-For: 127.0.0.1', 'X-Forwarded-For: 1.2.3.4')],
    ['', plain.replace('X-Forwarded-Host: s', 'X-Forwarded-Host: evil')],
    ['', `${plain}Forwarded: for=1\r\n`],
    ['', `${plain}Host: t\r\n`],
    ['', plain.replace(ID, '')],
    ['X-Request-Id: mine\r\n', plain],
    ['X-Request-Id: a b\r\n', plain.replace(/X-Request-Id.*/, 'X-Request-Id: a b')],
    ['A: 1\r\n', plain],
    ['A: 1\r\n', `Host: s\r\nA: 2\r\n${ID}${OURS}`],
    ['A: 1\r\nB: 2\r\n', `Host: s\r\nB: 2\r\nA: 1\r\n${ID}${OURS}`],
    ['', `${plain}A: 1\r\n`],
    ['Connection: a\r\nA: 1\r\n', `Host: s\r\nA: 1\r\n${ID}${OURS}`],
    ['', `Host: s\r\nConnection: close\r\n${ID}${OURS}`],
  ] as const) {
    t.type(
      problem(client, upstream, changed),
      'string',
      JSON.stringify([client, upstream.slice(-60), changed]),
    )
  }
  t.equal(
    headProblem(seen(plain), { ...expected(''), verdict: 'refuse', why: ['host'] }, false),
    'forwarded in spite of: host',
  )
})

t.test('every way in which the body can be wrong is seen', async (t) => {
  const chunked = expected('Transfer-Encoding: chunked\r\n', '2\r\nok\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n')
  const sum = { name: 'X-Sum', value: '1', padded: false }
  const whole = { framing: 'chunked', body: 'ok', trailers: [sum] } as const
  t.equal(bodyProblem(seen('', whole), chunked), undefined)
  t.equal(bodyProblem(seen('', { ...whole, body: 'OK' }), chunked), 'the body changed')
  t.equal(bodyProblem(seen('', { ...whole, trailers: [] }), chunked), 'a trailer was lost')
  for (const trailer of ['Host', 'X-Authenticated-Token-Id', 'X-New']) {
    const trailers = [sum, { name: trailer, value: 'evil', padded: false }]
    t.type(bodyProblem(seen('', { ...whole, trailers }), chunked), 'string', trailer)
  }
  t.type(
    bodyProblem(seen('', { body: 'ok' }), expected('Content-Length: 3\r\n', 'ok')),
    'string',
    'never whole',
  )
})

t.test('identity values are encoded byte by byte', async (t) => {
  t.equal(encodedIdentity('a%~! ä\x7f🦊'), 'a%25~!%20%C3%A4%7F%F0%9F%A6%8A')
})
