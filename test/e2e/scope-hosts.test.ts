/**
 * Where restricted tokens and links are accepted: `scopes.hosts`.
 * A service may choose by `Host` what a path names.
 */
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'

const NOT_HERE = { status: 403, code: 'AccessDenied', error: 'http_request_denied', details: 'host' }
const NOT_THIS_LINK = { status: 400, code: 'InvalidToken', error: 'http_request_denied', details: 'claims' }

/** A sidecar whose account `acme` may only read below `/public`, with links. */
async function setUp(t: Test, hosts: string, settings: Readonly<Record<string, string>> = {}) {
  const setup = await startSetup(t, {
    settings: { 'scopes-hosts': hosts, 'links-enabled': 'true', ...settings },
  })
  const narrow = await setup.sidecar.mint({ claims: { scope: 'storage.read:/public' } })
  const request = (token: string, line: string, lines: readonly string[], body = '') => {
    const authorization = token === '' ? [] : [`Authorization: Bearer ${token}`]
    const head = [`${line} HTTP/1.1`, ...lines, ...authorization, '', '']
    return setup.ask(Buffer.from(head.join('\r\n') + body))
  }
  return {
    ...setup,
    narrow,
    get: (token: string, target: string, host: string) => request(token, `GET ${target}`, [`Host: ${host}`]),
    request,
    makeLink(token: string, host: string, fields: object = {}) {
      const body = JSON.stringify({ method: 'GET', target: '/public/a', ...fields })
      const lines = [`Host: ${host}`, 'Content-Type: application/json', `Content-Length: ${body.length}`]
      return request(token, 'POST /v2/auth/links', lines, body)
    },
  }
}

function urlIn(response: { readonly body: Buffer }): string {
  const { url }: { url: string } = JSON.parse(response.body.toString())
  return url
}

t.test('a restricted token is accepted at the listed hosts alone, and others at every host', async (t) => {
  const { get, narrow, request, sidecar, upstream } = await setUp(t, 'Storage.example,[::1]:8443,10.0.0.7:80')
  const accepted = ['storage.example', 'STORAGE.EXAMPLE', 'storage.example:8443', '[::1]:8443', '10.0.0.7:80']
  for (const host of accepted) {
    t.equal((await get(narrow, '/public/a', host)).status, 200, host)
  }
  upstream.requests.splice(0)
  const refused = [
    'bucket.storage.example',
    'storage.example.',
    'xstorage.example',
    '[::1]',
    '10.0.0.7',
    'storage',
  ]
  for (const host of refused) {
    isOwnResponse(t, await get(narrow, '/public/a', host), NOT_HERE, host)
  }
  isOwnResponse(
    t,
    await get(narrow, 'http://other.example/public/a', 'other.example'),
    NOT_HERE,
    'absolute form',
  )
  const old = await request(narrow, 'GET /public/a', []).catch(() => undefined)
  t.equal(old?.status, 400, 'HTTP/1.1 needs a host')
  t.same(upstream.requests, [])
  t.equal(await sidecar.metric('auth_sidecar_token_checks_total{result="rejected",reason="host"}'), 7)
  await eventually(() => sidecar.log.some(({ reason }) => reason === 'host'), 'its line')
  const line = sidecar.log.find(({ reason }) => reason === 'host')
  t.match(line, { status: 403, account: 'acme', cause: /scopes\.hosts/ })
  t.equal((await get(sidecar.token, '/public/a', 'bucket.storage.example')).status, 200, 'unrestricted')
  t.equal((await get(narrow, '/v2/auth/token', 'bucket.storage.example')).status, 200, 'the time left')
})

t.test('without a list, no host is known; with *, none matters', async (t) => {
  const closed = await setUp(t, '')
  isOwnResponse(t, await closed.get(closed.narrow, '/public/a', 'storage.example'), NOT_HERE)
  isOwnResponse(t, await closed.makeLink(closed.narrow, 'storage.example'), NOT_HERE)
  const made = urlIn(await closed.makeLink(closed.sidecar.token, 'storage.example'))
  isOwnResponse(t, await closed.get('', made, 'storage.example'), NOT_HERE)
  t.ok(
    closed.sidecar.log.some(({ msg }) => /scopes\.hosts: is empty/.test(String(msg))),
    'a warning at the start',
  )
  const open = await setUp(t, '*')
  t.equal((await open.get(open.narrow, '/public/a', 'any.example')).status, 200)
  const anywhere = urlIn(await open.makeLink(open.narrow, 'any.example'))
  t.equal(decodeJwt(anywhere.slice(anywhere.indexOf('link_token=') + 11))['host'], undefined)
  t.equal((await open.get('', anywhere, 'other.example')).status, 200)
})

t.test('a link is bound to the host of its request, or to the one that is asked for', async (t) => {
  const { get, makeLink, narrow, sidecar, upstream } = await setUp(t, 'a.example,b.example')
  const ofA = urlIn(await makeLink(narrow, 'A.example:8443'))
  t.equal((await get('', ofA, 'a.example')).status, 200)
  t.equal((await get('', ofA, 'a.Example:9')).status, 200, 'neither the port nor the case counts')
  const ofB = urlIn(await makeLink(sidecar.token, 'internal', { host: 'b.example' }))
  t.equal((await get('', ofB, 'b.example')).status, 200)
  upstream.requests.splice(0)
  isOwnResponse(t, await get('', ofA, 'b.example'), NOT_THIS_LINK, 'another listed host')
  isOwnResponse(t, await get('', ofB, 'a.example'), NOT_THIS_LINK, 'another listed host')
  isOwnResponse(t, await get('', ofA, 'c.example'), NOT_HERE, 'a host that is not listed')
  for (const host of ['c.example', '', 'a.example/', 'x@a.example', 7, null, ['a.example'], '*']) {
    isOwnResponse(t, await makeLink(narrow, 'a.example', { host }), { status: 400, code: 'InvalidArgument' })
  }
  t.same(upstream.requests, [])
})

t.test('in forward auth, the host is the one that a trusted proxy names', async (t) => {
  const settings = { 'forward-auth-path': '/_auth', 'forwarded-trust': '127.0.0.1' }
  const { narrow, request } = await setUp(t, 'a.example', settings)
  const target = ['X-Forwarded-Method: GET', 'X-Forwarded-Uri: /public/a']
  const ask = (...lines: string[]) => request(narrow, 'GET /_auth', [...target, ...lines])
  t.equal((await ask('Host: proxy', 'X-Forwarded-Host: a.example')).status, 200)
  t.equal((await ask('Host: a.example')).status, 200)
  isOwnResponse(t, await ask('Host: proxy'), NOT_HERE)
  isOwnResponse(t, await ask('Host: a.example', 'X-Forwarded-Host: b.example'), NOT_HERE)
  const two = ['X-Forwarded-Host: a.example', 'X-Forwarded-Host: a.example']
  isOwnResponse(t, await ask('Host: proxy', ...two), NOT_HERE)
})

t.test('report mode forwards what another host refuses', async (t) => {
  const { get, makeLink, narrow, sidecar, upstream } = await setUp(t, 'a.example', { enforcement: 'report' })
  t.equal((await get(narrow, '/public/a', 'b.example')).status, 200)
  t.equal(upstream.requests.at(-1)?.headers['x-authenticated-account-id'], 'acme')
  await eventually(() => sidecar.log.some(({ wouldRefuse }) => wouldRefuse === 'host'), 'its line')
  const link = urlIn(await makeLink(narrow, 'a.example'))
  t.equal((await get('', link, 'b.example')).status, 200)
  t.equal(upstream.requests.at(-1)?.target, link, 'as it came')
})
