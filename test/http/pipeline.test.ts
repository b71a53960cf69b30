import t, { type Test } from 'tap'
import { createDecide } from '../../src/gate/decide.ts'
import type { RouteDecision } from '../../src/gate/routes.ts'
import type { Exchange } from '../../src/http/exchange.ts'
import { createPipeline, type PipelineOptions } from '../../src/http/pipeline.ts'
import { createResponder } from '../../src/http/respond.ts'
import { type Identity, REJECT_REASONS, type Verdict, type Verify } from '../../src/token/verdict.ts'
import { eventually } from '../support/eventually.ts'
import { answerWith, startListening } from '../support/listening.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

const identity: Identity = { accountId: 'acme', accessKey: 'AK', tokenId: 'id', expiresAt: 1 }
const good: Verdict = { ok: true, identity }

/** What else a test may want. */
interface Wanted {
  readonly route?: RouteDecision
  readonly verify?: Verify
  readonly upgrade?: boolean
}

/** A pipeline of stages that note what they are given, but for those a test brings. */
async function piped(t: Test, stages: Partial<PipelineOptions> & Wanted = {}) {
  const calls: string[] = []
  const faults: unknown[] = []
  const answer = (stage: string) => (exchange: Exchange) => {
    calls.push(`${stage} ${exchange.route} ${exchange.identity?.accountId ?? 'nobody'}`)
    answerWith(exchange, stage)
  }
  const decide = createDecide({
    limits: { headerLines: 20, headerBytes: 1000 },
    upgrade: stages.upgrade ?? false,
    routeOf: () => stages.route ?? 'proxy',
    verify: stages.verify ?? (() => good),
    onCheck: () => {},
  })
  const handle = createPipeline({
    decide,
    tokenEndpoint: {
      issue: async (exchange) => answer('issue')(exchange),
      tell: answer('tell'),
      refuseMethod: answer('method'),
    },
    forward: answer('forward'),
    responder: createResponder({ isClosing: () => false, deadlines: setDeadlines(t), idleMs: 1000 }),
    onFault: (_exchange, error) => void faults.push(error),
    ...stages,
  })
  const listening = await startListening(t, handle)
  const ask = async (lines = '') => {
    const client = await listening.connect()
    client.send(`GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n${lines}\r\n`)
    return client.response()
  }
  return { calls, faults, listening, ask }
}

t.test('each route ends where it should, with the identity that was proven on the way', async (t) => {
  for (const [route, call] of [
    ['proxy', 'forward proxy acme'],
    ['token_check', 'tell token_check acme'],
    ['token_issue', 'issue token_issue nobody'],
    ['public', 'forward public nobody'],
    ['method_not_allowed', 'method token_check nobody'],
  ] as const) {
    const { calls, ask } = await piped(t, { route })
    await ask()
    t.same(calls, [call])
  }
})

t.test('a verdict that takes its time is the same verdict', async (t) => {
  const { calls, ask } = await piped(t, { verify: async () => good })
  await ask()
  t.same(calls, ['forward proxy acme'])
  const denied = await piped(t, { verify: async () => ({ ok: false, reason: 'signature' }) })
  isOwnAnswer(
    t,
    await denied.ask(),
    { status: 400, code: 'InvalidToken', details: 'signature' },
    'a late refusal',
  )
  t.same(denied.calls, [])
})

t.test('each reason to refuse a token has its answer; only an expired one is called so', async (t) => {
  for (const reason of REJECT_REASONS) {
    const { ask, listening } = await piped(t, { verify: () => ({ ok: false, reason }) })
    const code = reason === 'expired' ? 'ExpiredToken' : 'InvalidToken'
    isOwnAnswer(t, await ask(), { status: 400, code, details: reason }, reason)
    t.equal(listening.started[0]?.reason, reason)
  }
})

t.test('what is not admitted reaches no stage', async (t) => {
  const { ask, calls, listening } = await piped(t)
  isOwnAnswer(t, await ask('Host: other\r\n'), { status: 400, code: 'InvalidArgument' }, 'two hosts')
  isOwnAnswer(t, await ask('a: b\r\n'.repeat(20)), { status: 431, code: 'InvalidArgument' }, 'lines')
  t.same(calls, [])
  const twice = await ask('Authorization: x\r\nX-Request-Id: kept\r\n')
  isOwnAnswer(t, twice, { status: 400, code: 'InvalidToken', details: 'malformed' }, 'two tokens')
  t.equal(twice.headers['x-request-id'], 'kept')
  t.same(calls, [])
  t.same(
    listening.started.map(({ reason }) => reason),
    ['admission', 'admission', 'malformed'],
  )
})

t.test('a request for another protocol reaches no stage where there is none', async (t) => {
  const { ask, calls } = await piped(t)
  isOwnAnswer(t, await ask('Upgrade: websocket\r\n'), { status: 400, code: 'InvalidArgument' }, 'upgrade')
  t.same(calls, [])
})

t.test(
  'where upgrades are enabled a plain WebSocket handshake may pass, and only to the storage',
  async (t) => {
    const handshake = 'Connection: Upgrade\r\nUpgrade: websocket\r\n'
    for (const [route, lines, call] of [
      ['proxy', handshake, 'forward proxy acme'],
      ['public', handshake.toUpperCase().replace('WEBSOCKET', 'WebSocket'), 'forward public nobody'],
      ['token_check', handshake, undefined],
      ['token_issue', handshake, undefined],
      ['method_not_allowed', handshake, undefined],
      ['proxy', handshake.replace('websocket', 'h2c'), undefined],
      ['proxy', `${handshake}Content-Length: 5\r\n`, undefined],
    ] as const) {
      const { ask, calls } = await piped(t, { route, upgrade: true })
      const answer = await ask(lines)
      if (call === undefined)
        isOwnAnswer(t, answer, { status: 400, code: 'InvalidArgument' }, `${route} ${lines}`)
      t.same(calls, call === undefined ? [] : [call])
    }
  },
)

t.test('a fault of any stage is an internal error, told to the log alone', async (t) => {
  const fault = new Error('the secret cause')
  const fail = () => {
    throw fault
  }
  const failLate = async () => fail()
  const noTokenEndpoint = { issue: failLate, tell: fail, refuseMethod: fail }
  for (const [name, stages] of Object.entries({
    deciding: { decide: fail },
    verifying: { verify: fail },
    'verifying, later': { verify: failLate },
    forwarding: { forward: fail },
    'forwarding behind a late verdict': { verify: async () => good, forward: fail },
    'forwarding of a public route': { route: 'public' as const, forward: fail },
    issuing: { route: 'token_issue' as const, tokenEndpoint: noTokenEndpoint },
    telling: { route: 'token_check' as const, tokenEndpoint: noTokenEndpoint },
    'refusing a method': { route: 'method_not_allowed' as const, tokenEndpoint: noTokenEndpoint },
  })) {
    const { ask, faults, listening } = await piped(t, stages)
    const answer = await ask()
    isOwnAnswer(t, answer, { status: 500, code: 'InternalError' }, name)
    t.equal(answer.headers['proxy-status'], 'storage-auth-sidecar; error=proxy_internal_error')
    t.equal(answer.headers['connection'], 'close')
    t.notMatch(answer.body.toString(), 'secret')
    t.same(faults, [fault], name)
    t.equal(listening.started[0]?.reason, 'internal')
  }
})

t.test('a client that leaves while its token is verified is forgotten', async (t) => {
  let say: (verdict: Verdict) => void = () => {}
  const verdict = new Promise<Verdict>((resolve) => {
    say = resolve
  })
  const { calls, listening } = await piped(t, { verify: () => verdict })
  const client = await listening.connect()
  client.send('GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n')
  await eventually(() => listening.started.length === 1, 'the request')
  client.socket.destroy()
  await eventually(() => listening.over.length === 1, 'the end')
  say(good)
  await verdict
  await new Promise((resolve) => setImmediate(resolve))
  t.same(calls, [])
})
