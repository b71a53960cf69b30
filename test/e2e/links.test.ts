/** Links: URLs that allow one method on one target without a token. */
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import { createLinkId } from '../../src/token/links.ts'
import { eventually } from '../support/eventually.ts'
import { makeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { type SetupOptions, startSetup } from '../support/setup.ts'
import { mintToken } from '../support/tokens.ts'
import { HANDSHAKE } from '../support/websocket.ts'

const DENIED = { status: 403, code: 'AccessDenied', error: 'http_request_denied', details: 'scope' }
const invalid = (details: string) => ({
  status: 400,
  code: 'InvalidToken',
  error: 'http_request_denied',
  details,
})

async function setupLinks(t: Test, { settings, ...options }: SetupOptions = {}) {
  const time = Math.floor(Date.now() / 1000) * 1000
  const enabled = { 'links-enabled': 'true', ...settings }
  const setup = await startSetup(t, { now: () => time, ...options, settings: enabled })
  const { ask, head } = setup
  const bare = (methodAndTarget: string, ...lines: readonly string[]) =>
    `${methodAndTarget} HTTP/1.1\r\nHost: storage.example\r\n${[...lines, '', ''].join('\r\n')}`
  const post = (body: string, token?: string) => {
    const lines = ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`]
    const request =
      token === undefined
        ? head('POST /v2/auth/links', ...lines)
        : bare('POST /v2/auth/links', `Authorization: Bearer ${token}`, ...lines)
    return ask(Buffer.from(request + body))
  }
  const make = async (fields: object, token?: string) => {
    const response = await post(JSON.stringify(fields), token)
    const made: { url: string; linkId: string; expirationSec: number } = JSON.parse(response.body.toString())
    t.equal(response.status, 200, response.body.toString())
    return made
  }
  return {
    ...setup,
    bare,
    post,
    make,
    use: (target: string, method = 'GET') => ask(bare(`${method} ${target}`)),
  }
}

const linkTokenOf = (url: string) => url.slice(url.indexOf('link_token=') + 'link_token='.length)

t.test('a link reaches its object without a token, with the identity of its maker', async (t) => {
  const { make, use, sidecar, upstream } = await setupLinks(t)
  const target = '/photos/c%61t.jpg?part=1&x=%2F'
  const { url, linkId, expirationSec } = await make({ method: 'GET', target, expirationSec: 60 })
  t.equal(expirationSec, 60)
  t.match(url, `${target}&link_token=`)
  const { method, target: bound, parent_jti, jti } = decodeJwt(linkTokenOf(url))
  t.same([method, bound, parent_jti, jti], ['GET', target, decodeJwt(sidecar.token).jti, linkId])
  for (let time = 0; time < 2; time++) {
    t.equal((await use(url)).body.toString(), 'ok')
  }
  t.equal(
    (await use(url.replace(/\?(.*)&(link_token=.*)/, '?$2&$1'))).status,
    200,
    'the parameter comes first',
  )
  t.same(
    upstream.requests.map((request) => request.target),
    [target, target, target],
  )
  t.match(upstream.requests[0]?.headers, {
    'x-authenticated-account-id': 'acme',
    'x-authenticated-access-key': sidecar.logins[0]?.accessKey,
    'x-authenticated-token-id': linkId,
    'x-authenticated-token-expires': String(decodeJwt(linkTokenOf(url)).exp),
  })
  t.equal(await sidecar.metric('auth_sidecar_links_issued_total'), 1)
  t.equal(await sidecar.metric('auth_sidecar_requests_total{route="link",method="GET",status="200"}'), 3)
  t.equal(
    await sidecar.metric('auth_sidecar_requests_total{route="link_issue",method="POST",status="200"}'),
    1,
  )
  t.notMatch(JSON.stringify(sidecar.log), /link_token|part=1|eyJ/, 'no query and no link in the log')
})

t.test('a link allows its method and target and nothing else', async (t) => {
  const { ask, bare, head, make, use, sidecar, upstream } = await setupLinks(t)
  const { url } = await make({ method: 'GET', target: '/a/b?x=1' })
  const token = linkTokenOf(url)
  const parameter = `link_token=${token}`
  t.equal((await ask(bare(`HEAD ${url}`), { head: true })).status, 200, 'HEAD where GET is bound')
  t.equal((await ask(bare(`GET ${url}`, 'Range: bytes=0-1', 'Cookie: token=x'))).status, 200)
  upstream.requests.splice(0)
  const refused: readonly (readonly [string, string, ...string[]])[] = [
    [`PUT ${url}`, 'claims'],
    [`OPTIONS ${url}`, 'claims'],
    [`GET /a/b?${parameter}`, 'claims'],
    [`GET /a/b?x=2&${parameter}`, 'claims'],
    [`GET /a/b/?x=1&${parameter}`, 'claims'],
    [`GET /a/%62?x=1&${parameter}`, 'claims'],
    [`GET /a/b?x=1&&${parameter}`, 'claims'],
    [`GET /a/b?x=1&${parameter}&`, 'claims'],
    [`GET ${url}&${parameter}`, 'malformed'],
    [`GET /a/b?x=1&link_token=`, 'malformed'],
    [`GET /a/b?x=1&link_token=${sidecar.token}`, 'claims'],
    [`GET ${url.slice(0, -8)}AAAAAAAA`, 'signature'],
    [`GET /a/b?x=1&link%5Ftoken=${token}`, 'missing'],
    [`GET /a/b?x=1;${parameter}`, 'missing'],
    [`GET /a/b/${parameter}`, 'missing'],
    [`GET /a/b?x=1`, 'missing', `Referer: https://storage.example${url}`],
    [`GET /v2/auth/token?${parameter}`, 'missing'],
    [`GET ${url}`, 'malformed', `Authorization: Bearer ${sidecar.token}`],
    [`GET ${url}`, 'malformed', 'Authorization: Basic eDp5'],
    ['GET /a/b?x=1', 'claims', `Authorization: Bearer ${token}`],
    ['GET /v2/auth/token', 'claims', `Authorization: Bearer ${token}`],
  ]
  for (const [request, details, ...lines] of refused) {
    isOwnResponse(
      t,
      await ask(bare(request, ...lines)),
      invalid(details),
      `${request.slice(0, 60)} ${lines.join().slice(0, 20)}`,
    )
  }
  for (const line of [
    'Destination: /x',
    'X-Amz-Copy-Source: /x/y',
    'X-Copy-From: /x',
    'X-HTTP-Method-Override: DELETE',
    'X-Method-Override: GET',
    'X-MS-Rename-Source: /x',
    'X-Symlink-Target: x/y',
    'X-Original-URL: /x',
    'X-Amz-Acl: public-read',
    'x_amz_grant_read: uri=all',
    'X-Oss-Object-ACL: private',
    HANDSHAKE.join('\r\n'),
  ]) {
    isOwnResponse(t, await ask(bare(`GET ${url}`, line)), DENIED, line)
  }
  isOwnResponse(
    t,
    await ask(`${head('POST /v2/auth/links', 'Content-Length: 2').replace(sidecar.token, token)}{}`),
    invalid('claims'),
  )
  t.equal((await use(url)).status, 200, 'the cached link still works')
  t.same(
    upstream.requests.map(({ target }) => target),
    ['/a/b?x=1'],
    'nothing else was forwarded',
  )
})

t.test('an upload link puts one object; a link without the right scope is not made', async (t) => {
  const { ask, bare, make, upstream } = await setupLinks(t)
  const { url } = await make({ method: 'PUT', target: '/inbox/report.pdf' })
  const upload = await ask(`${bare(`PUT ${url}`, 'Content-Length: 4', 'Expect: 100-continue')}`)
  t.equal(upload.status, 100)
  t.equal((await ask(`${bare(`PUT ${url}`, 'Content-Length: 4')}data`)).status, 200)
  t.equal(upstream.requests.at(-1)?.body.toString(), 'data')
  isOwnResponse(t, await ask(bare(`GET ${url}`)), invalid('claims'))
})

t.test('a request for a link must be complete, and ends with its token', async (t) => {
  const { post, make, sidecar, ask, head } = await setupLinks(t, {
    settings: { 'links-max-lifetime-seconds': '7200' },
  })
  const good = { method: 'GET', target: '/a' }
  t.equal((await make(good)).expirationSec, 3600)
  const short = await sidecar.mint({ lifetimeSeconds: 600 })
  const { expirationSec } = await make(good, short)
  t.ok(expirationSec <= 600 && expirationSec > 590, 'not longer than the token')
  const rows: readonly (readonly [object | string, RegExp])[] = [
    ['{', /JSON/],
    ['[]', /object/],
    [{}, /method.*target/],
    [{ ...good, method: 'get' }, /method/],
    [{ ...good, method: 'OPTIONS' }, /method/],
    [{ ...good, method: ['GET'] }, /method/],
    [{ ...good, target: 'a' }, /target/],
    [{ ...good, target: '/a#b' }, /target/],
    [{ ...good, target: '/a?' }, /target/],
    [{ ...good, target: '//a' }, /target/],
    [{ ...good, target: '/a/./b' }, /target/],
    [{ ...good, target: '/a/..' }, /target/],
    [{ ...good, target: '/a/%2E%2e/b?x' }, /target/],
    [{ ...good, target: '/a/.%2e' }, /target/],
    [{ ...good, target: '/%2e?x' }, /target/],
    [{ ...good, target: '/é' }, /target/],
    [{ ...good, target: '/a?b&&c' }, /target/],
    [{ ...good, target: '/a?link_token=x' }, /target/],
    [{ ...good, target: `/${'a'.repeat(4096)}` }, /target/],
    [{ ...good, expirationSec: 0 }, /expirationSec/],
    [{ ...good, expirationSec: 7201 }, /expirationSec/],
    [{ ...good, expirationSec: 1.5 }, /expirationSec/],
    [{ ...good, expirationSec: '60' }, /expirationSec/],
    [{ ...good, expirationSec: null }, /expirationSec/],
  ]
  for (const [body, message] of rows) {
    const response = await post(typeof body === 'string' ? body : JSON.stringify(body))
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, JSON.stringify(body).slice(0, 50))
    t.match(JSON.parse(response.body.toString()).message, message)
  }
  isOwnResponse(t, await post('{}', `${sidecar.token}x`), { status: 400, code: 'InvalidToken' })
  for (const request of ['GET /v2/auth/links', 'PUT /v2/auth/links/x', 'POST /v2/auth/links/x']) {
    t.match(
      await ask(head(request)),
      { status: 405, headers: { allow: request.includes('/x') ? '' : 'POST' } },
      request,
    )
  }
})

t.test('where links are off, their paths and parameter are like any other', async (t) => {
  const { ask, head, authorization, upstream } = await startSetup(t)
  for (const target of ['/v2/auth/links', '/v2/auth/links/x', '/a?link_token=x']) {
    t.equal((await ask(head(`POST ${target}`, 'Content-Length: 0'))).status, 200)
    isOwnResponse(t, await ask(head(`GET ${target}`).replace(authorization, '')), invalid('missing'))
  }
  t.same(
    upstream.requests.map(({ target }) => target),
    ['/v2/auth/links', '/v2/auth/links/x', '/a?link_token=x'],
  )
})

t.test('a link ends at its time, with its key and with the credential of its maker', async (t) => {
  let time = Date.now()
  const { make, use, post } = await setupLinks(t, { now: () => time })
  const { url } = await make({ method: 'GET', target: '/a', expirationSec: 60 })
  t.equal((await use(url)).status, 200)
  time += 61_000
  isOwnResponse(t, await use(url), { ...invalid('expired'), code: 'ExpiredToken' })
  t.equal((await post('{"method":"GET","target":"/a"}')).status, 200)
})

t.test('a link made within the last second of its token ends with it', async (t) => {
  let time = Math.floor(Date.now() / 1000) * 1000
  const { make, use, sidecar } = await setupLinks(t, {
    now: () => time,
    settings: { 'token-clock-tolerance-seconds': '10' },
  })
  const token = await sidecar.mint({ lifetimeSeconds: 60 })
  time += 59_800
  const { url, expirationSec } = await make({ method: 'GET', target: '/a' }, token)
  t.equal(expirationSec, 0)
  t.equal((await use(url)).status, 200)
  time += 200
  isOwnResponse(t, await use(url), { ...invalid('expired'), code: 'ExpiredToken' })
})

t.test('a link has the whole lifetime that was asked for, at any fraction of a second', async (t) => {
  let time = Date.UTC(2027, 0, 1) + 999
  const { make, use } = await setupLinks(t, {
    now: () => time,
    settings: { 'links-max-lifetime-seconds': '60' },
  })
  const { url, expirationSec } = await make({ method: 'GET', target: '/a', expirationSec: 60 })
  t.equal(expirationSec, 60)
  time += 60_000
  t.equal((await use(url)).status, 200, 'rounded up to a whole second')
  time += 1
  isOwnResponse(t, await use(url), { ...invalid('expired'), code: 'ExpiredToken' })
})

t.test('report mode forwards a refused link as it came', async (t) => {
  const { make, use, ask, bare, upstream } = await setupLinks(t, { settings: { enforcement: 'report' } })
  const { url } = await make({ method: 'GET', target: '/a' })
  for (const target of [url, url.replace('/a', '/b'), '/c?link_token=x&y']) {
    t.equal((await use(target)).status, 200)
  }
  t.equal((await ask(bare(`GET ${url}`, 'X-HTTP-Method-Override: DELETE'))).status, 200)
  t.same(
    upstream.requests.map(({ target, headers }) => [target, headers['x-authenticated-account-id']]),
    [
      ['/a', 'acme'],
      [url.replace('/a', '/b'), undefined],
      ['/c?link_token=x&y', undefined],
      [url, undefined],
    ],
  )
})

t.test('a public route takes no link, and its service learns none', async (t) => {
  const publicRoutes = '[{ method: GET, path: /healthz }]'
  const { make, use, upstream } = await setupLinks(t, { settings: { 'public-routes': publicRoutes } })
  const { url } = await make({ method: 'GET', target: '/healthz?deep=1' })
  for (const target of [url, url.replace('?deep=1&', '?'), '/healthz?link_token=x&link_token=y&a']) {
    t.equal((await use(target)).status, 200)
  }
  const targets = upstream.requests.map(({ target }) => target)
  t.same(targets, ['/healthz?deep=1', '/healthz', '/healthz?a'])
  t.notOk(upstream.requests.some(({ headers }) => 'x-authenticated-account-id' in headers))
})

t.test('forward auth judges the link of the request that a trusted proxy names', async (t) => {
  const { ask, bare, make } = await setupLinks(t, {
    settings: {
      'forward-auth-path': '/_auth',
      'forward-auth-max-age-seconds': '60',
      'forwarded-trust': '127.0.0.1',
    },
  })
  const { url, linkId } = await make({ method: 'GET', target: '/a' })
  const named = (method: string, uri: string, ...lines: readonly string[]) =>
    ask(bare('GET /_auth', `X-Original-Method: ${method}`, `X-Original-URI: ${uri}`, ...lines))
  t.match(await named('GET', url), {
    status: 200,
    headers: { 'cache-control': 'no-store', 'x-authenticated-token-id': linkId },
  })
  isOwnResponse(t, await named('DELETE', url), invalid('claims'))
  isOwnResponse(t, await named('GET', url, ...HANDSHAKE), DENIED)
  isOwnResponse(t, await named('GET', url.replace('/a', '/b')), invalid('claims'))
  isOwnResponse(t, await ask(bare('GET /_auth')), invalid('missing'))
})

t.test('without a database a link cannot be ended by its id', async (t) => {
  const { ask, head } = await setupLinks(t)
  t.equal((await ask(head(`DELETE /v2/auth/links/${createLinkId('acme')}`))).status, 405)
})

t.test('every form of a request that HTTP allows works with a link', async (t) => {
  const { ask, bare, make, use, upstream } = await setupLinks(t)
  const long = `/a?${Array.from({ length: 200 }, (_, at) => `p${at}=%C3%a4`).join('&')}`
  for (const target of ['/%e2%82%AC/%2ex', '/a//b/..c?x=?&=&;', long]) {
    const { url } = await make({ method: 'GET', target })
    t.equal((await use(url)).status, 200, target.slice(0, 20))
    t.equal(upstream.requests.at(-1)?.target, target)
    t.equal((await use(`http://storage.example${url}`)).status, 200, 'in absolute form')
    t.equal(upstream.requests.at(-1)?.target, target)
    t.equal((await ask(`GET ${url} HTTP/1.0\r\n\r\n`)).status, 200, 'in HTTP/1.0')
    t.equal(upstream.requests.at(-1)?.target, target)
  }
  const { url } = await make({ method: 'PUT', target: '/o' })
  const chunks = '4\r\ndata\r\n0\r\nX-Sum: 1\r\n\r\n'
  t.equal((await ask(`${bare(`PUT ${url}`, 'Transfer-Encoding: chunked')}${chunks}`)).status, 200)
  t.match(upstream.requests.at(-1), { target: '/o', body: Buffer.from('data'), rawTrailers: ['X-Sum', '1'] })
  const download = await make({ method: 'GET', target: '/o' })
  upstream.reply('HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-3/4\r\nContent-Length: 2\r\n\r\nta')
  t.match(await ask(bare(`GET ${download.url}`, 'Range: bytes=2-', 'If-Range: "e"')), { status: 206 })
  t.match(upstream.requests.at(-1)?.headers, { range: 'bytes=2-', 'if-range': '"e"' })
  upstream.reply('HTTP/1.1 304 Not Modified\r\nETag: "e"\r\nContent-Length: 4\r\n\r\n')
  t.match(await ask(bare(`GET ${download.url}`, 'If-None-Match: "e"'), { head: true }), { status: 304 })
})

t.test('a browser sends the target of a link as it is bound', async (t) => {
  const { make, use, upstream } = await setupLinks(t)
  const printable = Array.from({ length: 0x7e - 0x21 + 1 }, (_, at) => String.fromCharCode(0x21 + at))
  const inPath = printable.filter((character) => !'#?%'.includes(character)).join('')
  const inQuery = printable.filter((character) => !'#%'.includes(character)).join('')
  for (const target of [`/a${inPath}z`, `/a?x=${inQuery}z`, '/a%7bb?c=%27']) {
    const { url } = await make({ method: 'GET', target })
    const { pathname, search } = new URL(url, 'https://storage.example')
    t.equal(pathname + search, url, 'a WHATWG URL is unchanged')
    t.equal((await use(url)).status, 200, target)
    const { target: received = '' } = upstream.requests.at(-1) ?? {}
    t.equal(decodeURIComponent(received), decodeURIComponent(target), 'the same object')
  }
})

t.test('a link does no more than the credential of its maker may do', async (t) => {
  const { ask, bare, make, post, upstream } = await setupLinks(t, {
    credentials: [{ accountId: 'acme', scope: 'storage.create:/in storage.read:/out' }],
  })
  for (const [method, target] of [
    ['GET', '/in/a'],
    ['PUT', '/out/a'],
    ['DELETE', '/in/a'],
    ['POST', '/in/a'],
    ['PUT', '/in/a%252fb'],
    ['GET', '/outer'],
  ]) {
    isOwnResponse(t, await post(JSON.stringify({ method, target })), DENIED, `${method} ${target}`)
  }
  isOwnResponse(t, await post(JSON.stringify({ method: 'PUT', target: '/in/a?acl' })), DENIED, 'a query')
  const { url } = await make({ method: 'PUT', target: '/in/a' })
  const put = (...lines: readonly string[]) => ask(`${bare(`PUT ${url}`, 'Content-Length: 1', ...lines)}x`)
  for (const lines of [[], ['If-None-Match: "e"'], ['If-None-Match: *', 'Connection: if-none-match']]) {
    isOwnResponse(t, await put(...lines), DENIED, lines.join())
  }
  t.equal((await put('If-None-Match: *')).status, 200)
  t.match(upstream.requests, [
    { target: '/in/a', headers: { 'x-authenticated-scope': 'storage.create:/in storage.read:/out' } },
  ])
})

t.test('a link ends with a revocation of the tokens before the one that made it', async (t) => {
  const revocations = `${t.testdir({ 'r.yaml': 'revocations: []' })}/r.yaml`
  const { make, use, sidecar } = await setupLinks(t, { settings: { 'revocations-file': revocations } })
  const old = await sidecar.mint({ now: Date.now() - 600_000 })
  const asked = { method: 'GET', target: '/a' }
  const stolen = await make(asked, old)
  const good = await make(asked)
  for (const { url } of [stolen, good]) {
    t.equal((await use(url)).status, 200)
  }
  const issuedBefore = new Date(Date.now() - 300_000).toISOString()
  writeFileSync(revocations, `revocations: [{ accountId: acme, issuedBefore: "${issuedBefore}" }]`)
  await sidecar.app.reload()
  isOwnResponse(t, await use(stolen.url), invalid('revoked'), 'its token was issued before')
  t.equal((await use(good.url)).status, 200)
})

t.test('no link is in any log line, metric or error', async (t) => {
  for (const enforcement of ['enforce', 'report']) {
    const setup = await setupLinks(t, {
      settings: { enforcement, 'upgrade-enabled': 'true', 'cors-allowed-origins': 'https://app.example' },
    })
    const { ask, bare, make, sidecar, upstream } = setup
    const { url } = await make({ method: 'GET', target: '/secret-name?q=secret-query' })
    const origin = 'Origin: https://app.example'
    const refused = await ask(bare(`GET ${url}&x`, origin))
    const isReported = enforcement === 'report'
    if (!isReported) {
      t.equal(refused.headers['access-control-allow-origin'], 'https://app.example')
    }
    const answers = [refused]
    for (const request of [
      bare(`GET ${url} x`),
      bare(`GET ${url}#x`),
      bare(`GET ftp://x${url}`),
      bare(`GET ${url}`, 'Host: b'),
      bare(`GET ${url}`, `Referer: ${url}`, 'Authorization: x'),
      bare(`TRACE ${url}`),
      bare('POST /v2/auth/links', 'Content-Length: 900') + url.padEnd(900),
      bare('POST /v2/auth/token', 'Content-Length: 900') + url.padEnd(900),
    ]) {
      answers.push(await ask(request))
    }
    for (const reply of ['garbage\r\n\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n']) {
      upstream.reply(reply)
      answers.push(await ask(bare(`GET ${url}`)))
    }
    upstream.reply((socket) => socket.destroy())
    answers.push(await ask(bare(`GET ${url}`)))
    await upstream.close()
    answers.push(await ask(bare(`GET ${url}`)))
    const shown = await Promise.all(
      ['/metrics', '/status.json'].map(async (page) =>
        (await fetch(`http://127.0.0.1:${sidecar.adminPort}${page}`)).text(),
      ),
    )
    const texts = [...answers.map(({ rawHeaders, body }) => rawHeaders.join() + body), ...shown]
    t.notMatch(texts.concat(JSON.stringify(sidecar.log)).join(), /link_token|secret-query|eyJ/, enforcement)
  }
})

t.test('links of a trusted issuer have its account, and end with its trust', async (t) => {
  const key = await makeKey('RS256', 'theirs')
  const keys = createServer((_, res) => res.end(JSON.stringify({ keys: [key.publicJwk] })))
  const jwksUrl = `http://127.0.0.1:${await listen(t, keys)}/`
  const issuer = 'https://idp.example/'
  const entry = {
    issuer,
    jwksUrl,
    audience: 'storage-api',
    accounts: { runner: 'acme' },
    scope: 'storage.read:/a',
  }
  const setup = await setupLinks(t, { settings: { 'trusted-issuers': JSON.stringify([entry]) } })
  const { make, post, use, upstream, sidecar } = setup
  const series = `auth_sidecar_jwks_fetches_total{issuer="${issuer}",result="ok"}`
  await eventually(async () => (await sidecar.metric(series)) > 0, 'its key set')
  const token = await mintToken({
    key,
    now: Date.now() - 60_000,
    header: { typ: 'JWT' },
    claims: { iss: issuer, sub: 'runner', jti: 'theirs' },
  })
  const { url } = await make({ method: 'GET', target: '/a/b' }, token)
  t.equal((await use(url)).status, 200)
  t.match(upstream.requests[0]?.headers, {
    'x-authenticated-account-id': 'acme',
    'x-authenticated-access-key': 'runner',
    'x-authenticated-scope': 'storage.read:/a',
  })
  isOwnResponse(t, await post('{"method":"GET","target":"/b"}', token), DENIED)
  const without = await setupLinks(t, { settings: { 'keys-directory': sidecar.key.directory } })
  isOwnResponse(t, await without.use(url), invalid('claims'), 'where its issuer is not trusted')
})
