import t from 'tap'
import { expectedRequests, type KnownTrust } from './expected-requests.ts'
import { plainReply, type Reply } from './fuzz-replies.ts'
import { noteWhole, Trial, TrialRegister } from './trial.ts'

const trust: KnownTrust = {
  valid: new Map([['good', { accountId: 'a', accessKey: 'k', tokenId: 't', expiresAt: 9 }]]),
  expired: new Set(),
  logins: [],
}
const AUTHORIZED = 'Host: s\r\nAuthorization: Bearer good\r\n'
const ID = '12345678-1234-1234-1234-123456789abc'
const ANSWER = `HTTP/1.1 200 OK\r\nX-Fz: n.0\r\nContent-Length: 2\r\nX-Request-Id: ${ID}\r\nDate: now\r\nConnection: keep-alive\r\n\r\nok`
const OURS = [
  ['Host', 's'],
  ['X-Request-Id', ID],
  ['X-Forwarded-For', '127.0.0.1'],
  ['X-Forwarded-Host', 's'],
  ['X-Forwarded-Proto', 'http'],
  ['X-Forwarded-Port', '1'],
  ['Forwarded', 'for=127.0.0.1'],
  ['X-Authenticated-Account-Id', 'a'],
  ['X-Authenticated-Access-Key', 'k'],
  ['X-Authenticated-Token-Id', 't'],
  ['X-Authenticated-Token-Expires', '9'],
].map(([name = '', value = '']) => ({ name, value, padded: false }))

const own = (status: string, code: string, more = 'Connection: close\r\n') => {
  const body = JSON.stringify({ code, message: 'No.' })
  return (
    `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nCache-Control: no-store\r\n` +
    `Proxy-Status: storage-auth-sidecar; error=x\r\nX-Request-Id: ${ID}\r\n${more}\r\n${body}`
  )
}

function tried(bytes: string, replies: readonly Reply[] = []) {
  const trial = new Trial({ name: 'n', bytes, cuts: [], leave: 'close', replies }, trust)
  const register = new TrialRegister()
  register.add(trial)
  /** A whole request turns up at the upstream. */
  const arrive = (target: string, changed = {}) => {
    const seen = {
      method: 'GET',
      target,
      fields: OURS,
      framing: 'none',
      body: '',
      trailers: [],
      ...changed,
    } as const
    const sighted = register.sight(seen)
    if (sighted !== undefined) noteWhole(sighted.tracked, sighted.sighting, seen)
    return sighted
  }
  const judge = (received: string, view = {}) => {
    trial.judge({ received, ended: undefined, aborted: false, gaveUp: false, ...view })
    return trial.problem
  }
  return { trial, register, arrive, judge }
}

const GET = `GET /a HTTP/1.1\r\n${AUTHORIZED}\r\n`
const NONE = 'GET /a HTTP/1.1\r\nHost: s\r\n\r\n'

t.test('a good exchange has no problem', async (t) => {
  const { trial, arrive, judge } = tried(GET)
  t.notOk(trial.isComplete('', undefined))
  t.ok(arrive('/a'))
  t.ok(trial.isComplete(ANSWER, undefined))
  t.equal(judge(ANSWER), undefined)
})

t.test('a request that nobody sent fits no trial', async (t) => {
  const { arrive, register, trial } = tried(GET)
  t.equal(arrive('/trap'), undefined)
  register.delete(trial)
  t.equal(arrive('/a'), undefined)
})

t.test('a request that arrives twice, or changed, is a problem', async (t) => {
  const twice = tried(GET)
  const first = twice.arrive('/a')
  if (first !== undefined) first.sighting.answered = true
  twice.arrive('/a')
  t.equal(twice.trial.problem, 'one request became two at the upstream')
  const retried = tried(GET)
  retried.arrive('/a')
  retried.arrive('/a')
  t.equal(retried.trial.problem, undefined, 'once more is right while nothing was answered')
  const changed = tried(GET)
  changed.arrive('/a', { body: 'more' })
  t.equal(changed.trial.problem, 'the body changed')
})

t.test('answers must be those of their requests', async (t) => {
  for (const [received, problem] of [
    [ANSWER.replace('X-Fz: n.0', 'X-Fz: m.0'), 'the response header changed'],
    [ANSWER.replace(/ok$/, 'no'), 'the response body changed'],
    [ANSWER.replace('200 OK', '404 No'), 'status 404 instead of 200'],
    [ANSWER.replace(ID, 'other'), 'the request id differs'],
    [ANSWER.slice(0, -1), 'a whole response was cut'],
    [`${ANSWER}${ANSWER}`, 'an answer to no request'],
    [`HTTP/1.1 100 Continue\r\n\r\n${ANSWER}`, '100 Continue out of place'],
    ['garbage\r\n', 'the client received no status line'],
    ['', 'no answer to request 0 before the client left'],
    [own('500 Oops', 'InternalError'), 'answered 500 InternalError instead of the upstream’s answer'],
  ] as const) {
    const { arrive, judge } = tried(GET)
    arrive('/a')
    t.equal(judge(received), problem)
  }
})

t.test('what is refused must be refused in the documented words, and not be forwarded', async (t) => {
  t.equal(tried(NONE).judge(own('400 Bad', 'InvalidToken')), undefined)
  t.match(tried(NONE).judge(own('400 Bad', 'ExpiredToken')), /^answered 400 ExpiredToken instead/)
  t.match(tried(NONE).judge(ANSWER), /upstream/)
  t.equal(
    tried(NONE).judge(own('400 Bad', 'InvalidToken').replace('no-store', 'public')),
    'own answer: may be stored',
  )
  const { arrive, judge } = tried(`GET /a HTTP/1.1\r\n${AUTHORIZED}Content-Length: 01\r\n\r\nx`)
  arrive('/a', {
    framing: 'length',
    body: 'x',
    fields: [...OURS, { name: 'Content-Length', value: '01', padded: false }],
  })
  t.equal(judge(own('400 Bad', 'InvalidArgument')), 'refused and forwarded')
})

t.test('a broken response may be told as a fault or cut, and never pass as a whole one', async (t) => {
  const broken: Reply = {
    ...plainReply('n.0'),
    pieces: ['HTTP/1.1 200 OK\r\nX-Fz: n.0\r\nContent-Length: 9\r\n\r\nok'],
    ending: 'close',
  }
  const judged = (received: string, view = {}) => {
    const { arrive, judge } = tried(GET, [broken])
    arrive('/a')
    return judge(received, view)
  }
  t.equal(judged(own('503 Not', 'ServiceNotReady', 'Retry-After: 1\r\n')), undefined)
  t.equal(judged(ANSWER.replace('Content-Length: 2', 'Content-Length: 9'), { ended: 'end' }), undefined)
  t.equal(judged('', { ended: 'reset' }), undefined)
  t.equal(judged(ANSWER), 'a response that is none was passed on as a whole one')
})

t.test('a connection ends when that was said', async (t) => {
  const closing = GET.replace('Host', 'Connection: close\r\nHost')
  const judged = (received: string, view = {}) => {
    const { arrive, judge } = tried(closing)
    arrive('/a')
    return judge(received, view)
  }
  const said = ANSWER.replace('keep-alive', 'close')
  t.equal(judged(said, { ended: 'end' }), undefined)
  t.equal(judged(ANSWER, { ended: 'end' }), 'an answer that does not say that it is the last')
  t.equal(judged(said, { gaveUp: true }), 'the connection was not closed')
})

t.test('an identity is that of the token that came with the very request', async (t) => {
  const { arrive, trial } = tried(GET)
  arrive('/a', { fields: OURS.map((field) => (field.value === 'a' ? { ...field, value: 'b' } : field)) })
  t.match(trial.problem, /identity of somebody else/)
  t.equal(expectedRequests(GET, trust).length, 1)
})
