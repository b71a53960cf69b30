import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'

const REPORT = { enforcement: 'report' }

t.test('report mode forwards a refused token unchanged and without identity', async (t) => {
  const { ask, authorization, head, sidecar, upstream } = await startSetup(t, { settings: REPORT })
  const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
  const [header, payload] = sidecar.token.split('.')
  for (const [line, reason] of [
    ['', 'missing'],
    ['Authorization: Basic Zm9vOmJhcg==', 'malformed'],
    ['Authorization: Bearer not.a.token', 'malformed'],
    [`Authorization: Bearer ${expired}`, 'expired'],
    [`Authorization: Bearer ${header}.${payload}.${'A'.repeat(86)}`, 'signature'],
  ] as const) {
    const spoofed = ['X-Authenticated-Account-Id: victim', 'x_authenticated_token_id: victim']
    const text = head('PUT /o', 'Content-Length: 4', ...spoofed).replace(
      authorization,
      line === '' ? '' : `${line}\r\n`,
    )
    const before = sidecar.log.length
    const response = await ask(`${text}body`)
    t.equal(response.status, 200, reason)
    const [request] = upstream.requests.splice(0)
    t.equal(request?.body.toString(), 'body')
    t.equal(request?.headers['authorization'], line === '' ? undefined : line.slice(15), reason)
    t.notMatch(request?.rawHeaders.join(), /authenticated|victim/i, reason)
    await eventually(() => sidecar.log.length > before, 'its line')
    t.match(sidecar.log.at(-1), { msg: 'request', status: 200, wouldRefuse: reason })
    t.notOk('account' in (sidecar.log.at(-1) ?? {}))
    const counted = `auth_sidecar_token_checks_total{result="rejected",reason="${reason}"}`
    t.ok((await sidecar.metric(counted)) >= 1, reason)
  }
  t.equal(await sidecar.metric('auth_sidecar_enforcing'), 0)
  t.ok(
    sidecar.log.some(({ level, msg }) => level === 40 && /report/i.test(String(msg))),
    'a warning at the start',
  )
})

t.test('report mode forwards a valid request with its identity and without its token', async (t) => {
  const { ask, head, upstream, sidecar } = await startSetup(t, { settings: REPORT })
  t.equal((await ask(head('GET /o'))).status, 200)
  t.match(upstream.requests[0]?.headers, {
    'x-authenticated-account-id': 'acme',
    authorization: undefined,
  })
  await eventually(() => sidecar.log.some(({ msg }) => msg === 'request'), 'its line')
  t.notOk('wouldRefuse' in (sidecar.log.at(-1) ?? {}))
})

t.test('report mode changes neither admission nor the token endpoint', async (t) => {
  const { ask, authorization, head, sidecar, upstream } = await startSetup(t, { settings: REPORT })
  const invalid = { status: 400, code: 'InvalidArgument' }
  isOwnResponse(t, await ask(head('GET /o', 'Host: other')), invalid, 'two hosts')
  isOwnResponse(t, await ask(head('GET /o', 'Transfer_Encoding: chunked')), invalid, 'a look-alike')
  const two = await ask(head('GET /o', authorization.trimEnd()))
  isOwnResponse(t, two, { status: 400, code: 'InvalidToken' }, 'two Authorization headers have two readings')
  const noToken = head('GET /v2/auth/token').replace(authorization, '')
  isOwnResponse(t, await ask(noToken), { status: 400, code: 'InvalidToken', details: 'missing' })
  const login = (secret: string) => {
    const body = JSON.stringify({ ...sidecar.logins[0], secret })
    return ask(`POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  }
  isOwnResponse(t, await login('wrong'), { status: 403, code: 'Authentication failed' })
  isOwnResponse(t, await login(sidecar.logins[0]?.secret ?? ''), { status: 200 })
  t.equal(upstream.requests.length, 0)
})

t.test('a public route never forwards a token', async (t) => {
  const { ask, head, upstream } = await startSetup(t, {
    settings: { ...REPORT, 'public-routes': '[{ method: GET, path: /healthz }]' },
  })
  t.equal((await ask(head('GET /healthz'))).status, 200)
  t.equal(upstream.requests[0]?.headers['authorization'], undefined)
})
