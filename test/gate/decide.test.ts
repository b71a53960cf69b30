import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { createDecide, type DecideOptions } from '../../src/gate/decide.ts'
import { createRoutes } from '../../src/gate/routes.ts'
import { REJECT_REASONS, type Verdict, type Verify } from '../../src/token/verdict.ts'
import { type HeadParts, HOST, type Line, requestHead } from '../support/request-heads.ts'

const identity = { accountId: 'acme', accessKey: 'AK', tokenId: 'id', expiresAt: 2_000_000_000 }
const accepted: Verdict = { ok: true, identity }
const BEARER: Line = ['Authorization', 'Bearer t']

/** A gate for which every token is good, or has the verdict of `verify`. */
function gate(verify: Verify = () => accepted, options: Partial<DecideOptions> = {}) {
  const counted: string[] = []
  const decide = createDecide({
    headerLines: 20,
    enforcement: 'enforce',
    refusedTokenStatus: 400,
    routeOf: createRoutes({
      basePath: '',
      publicRoutes: [{ method: 'GET', path: '/healthz' }],
      corsPreflight: 'deny',
      forwardAuthPath: '/auth',
    }),
    verify,
    onCheck: (reason) => counted.push(reason),
    ...options,
  })
  /** Decides on `METHOD /target` with header lines behind `Host`. */
  const ask = (line: string, more: readonly Line[] = [BEARER], parts: HeadParts = {}) => {
    const [method = '', url = ''] = line.split(' ')
    return decide(requestHead({ method, url, more, ...parts }))
  }
  return { ask, counted }
}

t.test(
  'a request is forwarded on a public route without, elsewhere with the identity of its token',
  async (t) => {
    const { ask, counted } = gate()
    t.match(ask('PUT /b/k'), { route: 'proxy', decision: { act: 'forward', caller: accepted } })
    t.match(ask('GET /healthz'), { route: 'public', decision: { act: 'forward', caller: undefined } })
    t.match(ask('GET /auth/x'), { route: 'forward_auth', decision: { act: 'allow', caller: accepted } })
    t.strictSame(counted, ['ok', 'ok'], 'a token on a public route is not checked')
  },
)

t.test('the token endpoint issues, answers with the time left, or refuses the method', async (t) => {
  const { ask, counted } = gate()
  t.match(ask('POST /v2/auth/token', []), { route: 'token_issue', decision: { act: 'issue' } })
  t.match(ask('PUT /v2/auth/token'), { route: 'token_check', decision: { act: 'refuseMethod' } })
  const cors: Line[] = [
    ['Origin', 'https://app.example'],
    ['Access-Control-Request-Method', 'POST'],
  ]
  t.match(ask('OPTIONS /v2/auth/token', cors), { route: 'token_check', decision: { act: 'preflight' } })
  t.strictSame(counted, [])
  t.match(ask('GET /v2/auth/token/'), {
    route: 'token_check',
    decision: { act: 'timeLeft', caller: accepted },
  })
})

t.test('a token that does not hold is refused, and only an expired one is called expired', async (t) => {
  for (const reason of REJECT_REASONS) {
    for (const status of [400, 401] as const) {
      const { ask, counted } = gate(() => ({ ok: false, reason }), { refusedTokenStatus: status })
      const error = { ...(reason === 'expired' ? ERRORS.expiredToken : ERRORS.invalidToken), status }
      for (const line of ['GET /b', 'GET /v2/auth/token', 'GET /auth'])
        t.strictSame(ask(line).decision, { act: 'refuse', reason, error }, `${line} ${reason}`)
      t.strictSame(counted, [reason, reason, reason])
    }
  }
})

t.test(
  'report mode forwards refused tokens without an identity, and answers none on the token endpoint',
  async (t) => {
    const { ask, counted } = gate(() => ({ ok: false, reason: 'signature' }), { enforcement: 'report' })
    const reported = { caller: undefined, wouldRefuse: 'signature' }
    t.strictSame(ask('GET /b').decision, { act: 'forward', ...reported })
    t.strictSame(ask('GET /auth').decision, { act: 'allow', ...reported })
    t.match(ask('GET /v2/auth/token').decision, { act: 'refuse', reason: 'signature' })
    t.match(ask('GET /b', [HOST]).decision, { act: 'refuse', reason: 'admission' })
    t.match(ask('GET /b', [BEARER, BEARER]).decision, { act: 'refuse', reason: 'malformed' })
    t.equal(counted.length, 4)
  },
)

t.test('an ambiguous request is refused before it is routed', async (t) => {
  const { ask, counted } = gate()
  for (const line of ['GET /b', 'GET /healthz', 'POST /v2/auth/token'])
    t.strictSame(ask(line, [HOST, BEARER]), {
      request: undefined,
      route: 'proxy',
      decision: { act: 'refuse', error: ERRORS.malformedRequest, reason: 'admission' },
    })
  t.strictSame(counted, [])
  t.strictSame(ask('GET /healthz', [BEARER, BEARER]), {
    request: undefined,
    route: 'proxy',
    decision: { act: 'refuse', reason: 'malformed', error: ERRORS.invalidToken },
  })
  t.strictSame(counted, ['malformed'], 'a second Authorization is a token check that failed')
})

t.test('the token is what follows the Bearer scheme and its spaces, whole', async (t) => {
  const tokens: string[] = []
  const { ask } = gate((token) => {
    tokens.push(token)
    return accepted
  })
  for (const [authorization, token] of [
    ['Bearer a.b.c', 'a.b.c'],
    ['bEaReR    a.b.c', 'a.b.c'],
    ['Bearer a, Bearer b', 'a, Bearer b'],
    ['Bearer a\tb', 'a\tb'],
    ['Bearer Bearer a', 'Bearer a'],
  ] as const) {
    t.match(ask('GET /b', [['Authorization', authorization]]).decision, { act: 'forward' })
    t.equal(tokens.pop(), token)
  }
  for (const authorization of [
    ...['', ' ', 'Bearer', 'Bearer ', 'Bearer   ', 'Beare a.b.c', 'Bearer\ta.b.c', 'Bearer\xa0a.b.c'],
    ...['Bearera.b.c', 'Bearer=a', 'Bearers a', ' Bearer a', 'Basic dXNlcjpwYXNz', 'Bearex a'],
    ...['Token a', 'a.b.c', '"Bearer" a'],
  ])
    t.match(
      ask('GET /b', [['Authorization', authorization]]).decision,
      { act: 'refuse', reason: 'malformed', error: ERRORS.invalidToken },
      JSON.stringify(authorization),
    )
  t.match(ask('GET /b', []).decision, { act: 'refuse', reason: 'missing' })
  t.strictSame(tokens, [], 'nothing else is verified')
})

t.test('a token that is not cached is decided later, the same way', async (t) => {
  const { ask, counted } = gate(async () => accepted)
  const late = ask('GET /b')
  t.match(late, { route: 'proxy', request: { path: '/b' } })
  t.strictSame(await late.decision, { act: 'forward', caller: accepted })
  t.strictSame(counted, ['ok'])
  const failing = gate(() => Promise.reject(new Error('no entropy'))).ask('GET /v2/auth/token')
  await t.rejects(async () => failing.decision, { message: 'no entropy' })
})
