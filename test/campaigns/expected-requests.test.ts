import t from 'tap'
import { expectedRequests, isLookAlike, type KnownTrust, ownAnswers } from './expected-requests.ts'

const identity = { accountId: 'a', accessKey: 'b', tokenId: 'c', expiresAt: 1 }
const trust: KnownTrust = {
  valid: new Map([['good', identity]]),
  expired: new Set(['old']),
  logins: [{ accountId: 'a', accessKey: 'b', secret: 's' }],
}
const read = (bytes: string) => expectedRequests(bytes, trust)
const GOOD = 'Host: s\r\nAuthorization: Bearer good\r\n'
const one = (lines: string, body = '') => read(`PUT /x HTTP/1.1\r\n${GOOD}${lines}\r\n${body}`)
const verdicts = (bytes: string) => read(bytes).map(({ verdict }) => verdict)

t.test('plain requests behind each other are taken, each with its body', async (t) => {
  const requests = read(
    `GET /a HTTP/1.1\r\n${GOOD}\r\nPUT /b?q HTTP/1.1\r\n${GOOD}Content-Length: 2\r\n\r\nokPOST /c HTTP/1.1\r\n${GOOD}Transfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n`,
  )
  t.match(requests, [
    { verdict: 'take', method: 'GET', target: '/a', framing: 'none', closes: 'no' },
    { verdict: 'take', method: 'PUT', target: '/b?q', framing: 'length', body: 'ok' },
    { verdict: 'take', method: 'POST', target: '/c', framing: 'chunked', body: 'hi' },
  ])
  t.same(requests[0]?.fate, { kind: 'forward', identity })
})

t.test('what two parsers could read differently is refused, and nothing stands behind it', async (t) => {
  for (const lines of [
    'Content-Length: +1\r\n',
    'Content-Length: 1\r\nContent-Length: 1\r\n',
    'Content-Length: 1\r\nTransfer-Encoding: chunked\r\n',
    'Transfer-Encoding: gzip, chunked\r\n',
    'Transfer_Encoding: chunked\r\n',
    'Authorization_: x\r\n',
    'Authorization: x\r\n',
    'Host: s\r\n',
    'Connection: content-length\r\n',
    'Connection: X_Authenticated_Token-Id\r\n',
    'Connection: upgrade\r\nUpgrade: h2c\r\n',
    'X: a\r\n b\r\n',
    'X : a\r\n',
    'a: b\r\n'.repeat(201),
    `X: ${'y'.repeat(17_000)}\r\n`,
  ]) {
    t.same(
      verdicts(`PUT /x HTTP/1.1\r\n${GOOD}${lines}\r\n1GET /y HTTP/1.1\r\n${GOOD}\r\n`),
      ['refuse'],
      lines.slice(0, 60),
    )
  }
  for (const line of [
    'GET /x HTTP/1.2',
    'GET /x HTTP/2.0',
    'GET /x',
    'TRACE /x HTTP/1.1',
    'CONNECT s:80 HTTP/1.1',
    'GET * HTTP/1.1',
    'GET x HTTP/1.1',
    'GET /x#y HTTP/1.1',
    'GET /\x01 HTTP/1.1',
    'GET http://t/x HTTP/1.1',
    'GET http://u@s/x HTTP/1.1',
    'G\0T /x HTTP/1.1',
  ]) {
    t.same(verdicts(`${line}\r\n${GOOD}\r\n`), ['refuse'], JSON.stringify(line))
  }
  for (const host of ['', 'a, b', 'u@h', 'h/p', 'a b']) {
    t.same(verdicts(`GET /x HTTP/1.1\r\nHost: ${host}\r\n\r\n`), ['refuse'], host)
  }
  t.same(verdicts('GET /x HTTP/1.1\r\n\r\n'), ['refuse'], 'no host')
})

t.test('where the rules leave a choice, there is one reading', async (t) => {
  t.match(one('Content-Length: 02\r\n', 'ok'), [{ verdict: 'either', body: 'ok' }])
  t.match(one('X~Connection: a\r\n-Connection: close\r\n'), [{ verdict: 'either', closes: 'no' }])
  t.match(read(`GET  /x  HTTP/1.1\r\n${GOOD}\r\n`), [{ verdict: 'either', target: '/x' }])
  t.match(read(`\r\nGET /x HTTP/1.1\r\n${GOOD}\r\n`), [{ verdict: 'either', start: 2 }])
  t.match(read(`GET http://s/x HTTP/1.1\r\n${GOOD}\r\n`), [{ verdict: 'take', target: '/x' }])
  t.match(read(`FOO /x HTTP/1.1\r\n${GOOD}\r\n`), [{ verdict: 'either' }])
  t.match(one('Transfer-Encoding:  chunked\t\r\n', '0\r\n\r\n'), [{ verdict: 'either' }])
})

t.test('a request that is cut is never whole', async (t) => {
  t.same(verdicts('GET /x HT'), ['unfinished'])
  t.match(one('Content-Length: 3\r\n', 'ok'), [{ verdict: 'unfinished', hasHead: true }])
  t.match(one('Transfer-Encoding: chunked\r\n', '2\r\nok\r\n'), [{ verdict: 'unfinished', hasHead: true }])
  const [broken] = one('Transfer-Encoding: chunked\r\n', '2\r\noops\r\n0\r\n\r\n')
  t.match(broken, { verdict: 'refuse', why: ['body'], hasHead: true })
  t.ok(broken && ownAnswers(broken).includes('400 InvalidArgument'))
})

t.test('nothing stands behind a request that closes its connection', async (t) => {
  const behind = `GET /y HTTP/1.1\r\n${GOOD}\r\n`
  t.same(verdicts(`GET /x HTTP/1.1\r\n${GOOD}Connection: x, close\r\n\r\n${behind}`), ['take'])
  t.same(verdicts(`GET /x HTTP/1.0\r\n${GOOD}\r\n${behind}`), ['take'])
  t.same(verdicts(`GET /x HTTP/1.0\r\n${GOOD}Connection: keep-alive\r\n\r\n${behind}`), ['take', 'take'])
})

t.test('who a request speaks for is decided by its own token', async (t) => {
  const fate = (authorization: string, line = 'GET /x HTTP/1.1') =>
    read(`${line}\r\nHost: s\r\n${authorization}\r\n`)[0]?.fate
  const answer = (...answers: string[]) => ({ kind: 'answer', answers })
  t.match(fate('Authorization: bEARER   good\r\n'), { kind: 'forward' })
  t.same(fate('Authorization: Bearer old\r\n'), answer('400 ExpiredToken'))
  for (const refused of [
    '',
    'Authorization: Basic good\r\n',
    'Authorization: Bearer good x\r\n',
    'Authorization: Bearer\tgood\r\n',
  ]) {
    t.same(fate(refused), answer('400 InvalidToken'), refused)
  }
  t.same(fate('Authorization: Bearer good\r\n', 'GET /v2/auth/token/?x HTTP/1.1'), answer('200 '))
  t.same(fate('Authorization: Bearer good\r\n', 'PUT /v2/auth/token HTTP/1.1'), answer('405 InvalidArgument'))
  t.match(fate('Authorization: Bearer good\r\n', 'PUT /v2/auth/%74oken HTTP/1.1'), { kind: 'forward' })
})

t.test('names that could be taken for special ones are known', async (t) => {
  for (const name of ['Transfer.Encoding', 'content~length', '-Host', 'te.', 'connection_'])
    t.ok(isLookAlike(name), name)
  for (const name of ['Host', 'X-Host', 'x-amz-meta-my_key', 'transferencoding'])
    t.notOk(isLookAlike(name), name)
})
