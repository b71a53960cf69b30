import t, { type Test } from 'tap'
import type { LoginPermission } from '../../src/credentials/login-throttle.ts'
import type { LoginVerdict } from '../../src/credentials/store.ts'
import { createResponder } from '../../src/http/respond.ts'
import {
  createTokenEndpoint,
  ISSUE_FAILURES,
  type TokenEndpointOptions,
} from '../../src/http/token-endpoint.ts'
import type { Identity } from '../../src/token/verdict.ts'
import { eventually } from '../support/eventually.ts'
import { admitted, answerWith, startListening } from '../support/listening.ts'
import { isOwnAnswer } from '../support/own-answer.ts'
import { setDeadlines } from '../support/set-deadlines.ts'

const NOW = Date.UTC(2030, 0, 1)
const identity: Identity = { accountId: 'acme', accessKey: 'AK', tokenId: 'id', expiresAt: NOW / 1000 + 60 }
const LOGIN = '{"accountId":"acme","accessKey":"AK","secret":"hush"}'

/** A token endpoint whose store and issuer say what the test wants. */
async function endpoint(
  t: Test,
  wanted: Partial<TokenEndpointOptions> & { readonly verdict?: LoginVerdict } = {},
) {
  const told: string[] = []
  const faults: unknown[] = []
  const deadlines = setDeadlines(t)
  const permission: LoginPermission = { ok: true, settle: (outcome) => void told.push(`settled ${outcome}`) }
  const tokenEndpoint = createTokenEndpoint({
    responder: createResponder({ isClosing: () => false, deadlines, idleMs: 1000 }),
    credentials: {
      authenticate: async () => wanted.verdict ?? 'accepted',
      hasAccount: (accountId) => accountId === 'acme',
      standing: () => ({ inForce: false }),
    },
    canIssue: () => true,
    throttle: {
      check: (account, address) => {
        told.push(`reserved for ${account} at ${address}`)
        return permission
      },
    },
    issue: async () => ({ token: 'a.b.c', identity }),
    clientAddress: () => 'there',
    deadlines,
    idleMs: 1000,
    now: () => NOW,
    contract: { expirationSec: 'integer', authenticationFailedCode: 'Authentication failed' },
    onIssued: () => void told.push('issued'),
    onIssueFailure: (reason) => void told.push(reason),
    ...wanted,
  })
  const listening = await startListening(t, (exchange) => {
    admitted(exchange)
    if (exchange.req.method === 'POST') {
      tokenEndpoint.issue(exchange).catch((fault: unknown) => {
        faults.push(fault)
        answerWith(exchange, 'fault')
      })
    } else if (exchange.req.method === 'GET') tokenEndpoint.tell(exchange, identity)
    else tokenEndpoint.refuseMethod(exchange)
  })
  const client = await listening.connect()
  const send = (body = LOGIN) =>
    client.send(`POST / HTTP/1.1\r\nHost: h\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  const login = (body?: string) => {
    send(body)
    return client.response()
  }
  /** A login whose answer is held back for a moment. */
  const slowedLogin = async () => {
    send()
    await eventually(() => {
      deadlines.advance(50)
      return client.received().length > 0
    }, 'the answer')
    return client.response()
  }
  return { send, slowedLogin, told, faults, deadlines, listening, client, login }
}

t.test('an accepted login gets a token and the time it has', async (t) => {
  const { login, told, listening } = await endpoint(t)
  const answer = await login()
  isOwnAnswer(t, answer, { status: 200 }, 'accepted')
  t.equal(answer.body.toString(), '{"token":"a.b.c","expirationSec":60}')
  t.same(told, ['reserved for acme at there', 'settled accepted', 'issued'])
  t.equal(listening.started[0]?.identity, identity, 'for the log')
})

t.test('every other end of a login has its answer, its reason and its place in the metrics', async (t) => {
  for (const [verdict, status, code, error] of [
    ['rejected', 403, 'Authentication failed', 'http_request_denied'],
    ['busy', 503, 'ServiceNotReady', 'proxy_internal_response'],
    ['unavailable', 503, 'ServiceNotReady', 'proxy_internal_response'],
  ] as const) {
    const { slowedLogin, told, listening } = await endpoint(t, { verdict })
    const answer = await slowedLogin()
    isOwnAnswer(t, answer, { status, code }, verdict)
    t.equal(answer.headers['proxy-status'], `storage-auth-sidecar; error=${error}`)
    t.equal(answer.headers['connection'], 'keep-alive')
    t.same(told, ['reserved for acme at there', `settled ${verdict}`, verdict])
    t.equal(listening.started[0]?.reason, verdict)
    t.ok(ISSUE_FAILURES.includes(verdict))
  }
})

t.test('a throttled login is told when to come again, and its secret is not looked at', async (t) => {
  const { slowedLogin, told } = await endpoint(t, {
    throttle: { check: () => ({ ok: false, retryAfterSeconds: 33 }) },
    credentials: {
      authenticate: () => {
        throw new Error('looked at')
      },
      hasAccount: (accountId) => accountId === 'acme',
      standing: () => ({ inForce: false }),
    },
  })
  const answer = await slowedLogin()
  isOwnAnswer(t, answer, { status: 503, code: 'ServiceNotReady' }, 'throttled')
  t.equal(answer.headers['retry-after'], '33')
  t.same(told, ['throttled'])
})

t.test('a login that is turned away waits a moment for its answer; no other does', async (t) => {
  const { send, told, client, deadlines } = await endpoint(t, { verdict: 'busy' })
  send()
  await eventually(() => told.includes('settled busy'), 'the verdict')
  deadlines.advance(249)
  await new Promise(setImmediate)
  t.notOk(told.includes('busy'))
  t.equal(client.received().length, 0)
  deadlines.advance(1)
  t.equal((await client.response()).status, 503)
  t.equal(deadlines.waiting.size, 0)
  const denied = await endpoint(t, { verdict: 'rejected' })
  t.equal((await denied.login()).status, 403)
})

t.test('what is no login is neither counted against anybody nor checked', async (t) => {
  const { login, told } = await endpoint(t)
  isOwnAnswer(t, await login('{}'), { status: 400, code: 'InvalidArgument' }, 'no login')
  t.same(told, ['invalid'])
})

t.test('what the head of a login says of its body is looked at before any of it is read', async (t) => {
  for (const lines of ['Content-Type: text/plain\r\nContent-Length: 5', 'Content-Length: 16385']) {
    const { client, told } = await endpoint(t)
    client.send(`POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n${lines}\r\n\r\n`)
    isOwnAnswer(t, await client.response(), { status: 400, code: 'InvalidArgument' }, lines)
    t.equal(await client.closed(), 'end')
    t.same(told, ['invalid'])
  }
})

t.test('a client that waits to be told to go on is told', async (t) => {
  const { client } = await endpoint(t)
  const { length } = LOGIN
  client.send(`POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: ${length}\r\n\r\n`)
  t.equal((await client.response()).status, 100)
  client.send(LOGIN)
  isOwnAnswer(t, await client.response(), { status: 200 }, 'the login')
})

t.test('a token that could not be minted is a fault, and counted', async (t) => {
  const fault = new Error('no key')
  const { login, told, faults } = await endpoint(t, {
    issue: async () => {
      throw fault
    },
  })
  t.equal((await login()).body.toString(), 'fault')
  t.same(faults, [fault])
  t.same(told, ['reserved for acme at there', 'settled accepted', 'internal'])
})

t.test('the forms that other clients decode are settings', async (t) => {
  const contract = { expirationSec: 'string', authenticationFailedCode: 'AuthenticationFailed' } as const
  const { login, client } = await endpoint(t, { contract })
  t.equal((await login()).body.toString(), '{"token":"a.b.c","expirationSec":"60"}')
  client.send('GET / HTTP/1.1\r\nHost: h\r\n\r\n')
  t.equal((await client.response()).body.toString(), '{"expirationSec":"60"}')
  const rejecting = await endpoint(t, { contract, verdict: 'rejected' })
  isOwnAnswer(t, await rejecting.login(), { status: 403, code: 'AuthenticationFailed' }, 'rejected')
})

t.test(
  'the time left is counted in whole seconds, like the times in a token, and never negative',
  async (t) => {
    let now = NOW
    const { client } = await endpoint(t, { now: () => now })
    for (const [at, left] of [
      [NOW, 60],
      [NOW + 1, 60],
      [NOW + 999, 60],
      [NOW + 1000, 59],
      [NOW + 59_999, 1],
      [NOW + 60_000, 0],
      [NOW + 90_000, 0],
    ] as const) {
      now = at
      client.send('GET / HTTP/1.1\r\nHost: h\r\n\r\n')
      t.equal((await client.response()).body.toString(), `{"expirationSec":${left}}`)
    }
  },
)

t.test('any other method is told which ones there are', async (t) => {
  const { client, listening } = await endpoint(t)
  client.send('DELETE / HTTP/1.1\r\nHost: h\r\n\r\n')
  isOwnAnswer(t, await client.response(), { status: 405, code: 'InvalidArgument' }, 'DELETE')
  t.equal(listening.started[0]?.reason, 'method')
})

t.test('a client that leaves in the middle of its login is nobody’s failure', async (t) => {
  const { client, listening, told } = await endpoint(t)
  client.send('POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{')
  await eventually(() => listening.started[0]?.bytesIn === 1, 'the request')
  client.socket.resetAndDestroy()
  await eventually(() => listening.over.length === 1, 'the end')
  await new Promise((resolve) => setImmediate(resolve))
  t.same(told, [])
})

t.test('a login that stops half-way is answered when its time is over', async (t) => {
  const { client, listening, told, deadlines } = await endpoint(t)
  client.send('POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{')
  await eventually(() => listening.started[0]?.bytesIn === 1, 'the request')
  deadlines.advance(1000)
  isOwnAnswer(t, await client.response(), { status: 408, code: 'InvalidArgument' }, 'late')
  t.same(told, ['invalid'])
})

t.test('without a key to sign with, or credentials, there is nothing to log in to', async (t) => {
  for (const wanted of [{ canIssue: () => false }, { credentials: undefined }]) {
    const { login, told } = await endpoint(t, wanted)
    isOwnAnswer(t, await login(), { status: 503, code: 'ServiceNotReady' }, Object.keys(wanted).join())
    t.same(told, ['unavailable'])
  }
})
