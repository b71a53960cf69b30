/**
 * One connection of the fuzz run: what was sent, what had to become of it, what did.
 *
 * In: a script and, as they come, the requests at the upstream and the bytes at the client. Out: the first invariant that
 * did not hold. The trials that are under way, or were until a moment ago, stand in a register by method and target;
 * a request at the upstream that fits none of them is one that no client sent.
 *
 * @module
 */
import { type ClientAnswer, type Ended, readAnswers } from './client-answers.ts'
import {
  type ExpectedRequest,
  expectedRequests,
  folded,
  type KnownTrust,
  ownAnswers,
} from './expected-requests.ts'
import { type ExpectedResponse, expectedResponse } from './expected-responses.ts'
import { plainReply, type Reply } from './fuzz-replies.ts'
import type { Script } from './fuzz-requests.ts'
import { type Field, listed, single } from './http-grammar.ts'
import { isOwnAnswer, ownAnswerProblem } from './own-answers.ts'
import {
  bodyProblem,
  headProblem,
  keptRequestId,
  readsAsOurs,
  type SeenRequest,
} from './upstream-invariants.ts'

/** A request at the upstream. */
interface Sighting {
  whole: boolean
  /** A byte of an answer has been sent. */
  answered: boolean
  readonly requestId: string
}

/** A request of a trial, and what was seen of it. */
export interface Tracked {
  readonly trial: Trial
  readonly expected: ExpectedRequest
  readonly reply: Reply
  readonly sightings: Sighting[]
}

/** What a client saw of its connection. */
export interface ClientView {
  readonly received: string
  readonly ended: Ended
  /** It left before it had all that it could expect. */
  readonly aborted: boolean
  /** It waited in vain for more, or for the end of the connection. */
  readonly gaveUp: boolean
}

/** One connection. */
export class Trial {
  readonly script: Script
  readonly requests: readonly Tracked[]
  /** The first invariant that did not hold. */
  problem: string | undefined
  /** What its client had received in the end. */
  received = ''

  constructor(script: Script, trust: KnownTrust) {
    this.script = script
    this.requests = expectedRequests(script.bytes, trust).map((expected, index) => {
      const name = `${script.name}.${index}`
      const reply = script.replies[index] ?? plainReply(name)
      return {
        trial: this,
        expected,
        reply: expected.method === 'HEAD' ? headOnly(reply) : reply,
        sightings: [],
      }
    })
  }

  /** Notes a problem; the first one counts. */
  note(problem: string | undefined): void {
    this.problem ??= problem
  }

  /** The answers so far: what ends the client's waiting. */
  answers(received: string, ended: Ended): readonly ClientAnswer[] | string {
    return readAnswers(
      received,
      this.requests.map(({ expected }) => expected.method),
      ended,
    )
  }

  /** Whether a client has all that it can expect on a connection that stays open. */
  isComplete(received: string, ended: Ended): boolean {
    const answers = this.answers(received, ended)
    if (typeof answers === 'string') return true
    const awaited = this.requests.filter(({ expected }) => expected.verdict !== 'unfinished').length
    const last = answers[answers.length - 1]
    return answers.length >= awaited && (last === undefined || (last.whole && !last.closes))
  }

  /** Judges what the client saw. */
  judge({ received, ended, aborted, gaveUp }: ClientView): void {
    this.received = received
    const answers = this.answers(received, ended)
    if (typeof answers === 'string') {
      this.note(`the client received ${answers}`)
      return
    }
    let open = true
    for (const [index, answer] of answers.entries()) {
      const tracked = this.requests[index]
      if (tracked === undefined || !open) {
        this.note(tracked === undefined ? 'an answer to no request' : 'an answer behind the last one')
        return
      }
      const { closes, hasHead, verdict, why } = tracked.expected
      const unsent = verdict === 'unfinished' || why[0] === 'body' // answered early, it may still be cut
      const fleeting = aborted || unsent || (ended === 'reset' && this.#resetIsFair(index))
      this.note(answerProblem(tracked, answer, fleeting))
      if (closes === 'yes' && hasHead && !answer.closes)
        this.note('an answer that does not say that it is the last')
      open = answer.whole && !answer.closes
    }
    const left = this.requests[answers.length]
    if (gaveUp && (!open || left === undefined)) this.note('the connection was not closed')
    if (!open || left === undefined || aborted || left.expected.verdict === 'unfinished') return
    // What breaks before its head has been sent may still have to be cut: its client cannot be told.
    if (ended !== undefined && cutIsFair(left)) return
    if (ended === 'reset' && this.#resetIsFair(answers.length)) return
    const how = gaveUp ? 'in time' : `before the ${ended ?? 'client left'}`
    this.note(`no answer to request ${answers.length} ${how}`)
  }

  /**
   * Whether a request from this one on may end the connection by reset. A client that is still sending then loses the
   * answers that it has not read.
   */
  #resetIsFair(from: number): boolean {
    return this.requests.slice(from).some((request) => cutIsFair(request) || this.#sendsBehind(request))
  }

  /** Whether the client goes on sending behind a request by which it ended the connection itself. */
  #sendsBehind({ expected }: Tracked): boolean {
    const { closes, http10, fields, end } = expected
    const asks = [...listed(fields, 'connection'), ...listed(fields, 'proxy-connection')]
    const ends = closes === 'yes' || http10 || asks.some((option) => option.includes('close'))
    return ends && end < this.script.bytes.length
  }
}

function answerProblem(tracked: Tracked, answer: ClientAnswer, cut: boolean): string | undefined {
  const { expected, reply, sightings } = tracked
  const response = responseOf(tracked)
  if (answer.informational.includes(100) && !mayContinue(expected, reply)) return '100 Continue out of place'
  if (isOwnAnswer(answer)) {
    if (!answer.whole) return cut ? undefined : 'an answer of the sidecar was cut'
    const given = ownAnswerProblem(answer, expected.method === 'HEAD', keptRequestId(expected.fields))
    if (given.problem !== undefined) return given.problem
    const allowed: string[] = [...ownAnswers(expected)]
    if (expected.fate.kind === 'forward' && (response.kind !== 'whole' || isStale(tracked))) {
      allowed.push('500 InternalError', '503 ServiceNotReady')
    }
    if (!allowed.some((other) => matches(given.answer, other))) {
      return `answered ${given.answer} instead of ${allowed.join(' or ') || 'the upstream’s answer'}`
    }
    const refused = answer.status >= 400 && answer.status < 500
    if (refused && sightings.some(({ whole }) => whole) && !reply.early) return 'refused and forwarded'
    return undefined
  }
  if (expected.fate.kind !== 'forward') return 'an answer of the upstream to a request that is not for it'
  if (sightings.length === 0) return 'an answer to a request that the upstream has not seen'
  if (response.kind === 'fault') {
    return answer.whole ? 'a response that is none was passed on as a whole one' : undefined
  }
  if (!answer.whole) return cut || response.kind === 'either' ? undefined : 'a whole response was cut'
  return responseProblem(answer, response, sightings)
}

/** Whether a client's answer is the upstream's response. */
function responseProblem(
  answer: ClientAnswer,
  response: Exclude<ExpectedResponse, { kind: 'fault' }>,
  sightings: readonly Sighting[],
): string | undefined {
  if (answer.status !== response.status) return `status ${answer.status} instead of ${response.status}`
  if (answer.body !== response.body) return 'the response body changed'
  const id = single(answer.fields, 'x-request-id')
  if (typeof id !== 'object') return 'not exactly one X-Request-Id in the response'
  if (!sightings.some(({ requestId }) => requestId === id.value)) return 'the request id differs'
  if (answer.fields.some(({ name }) => folded(name).startsWith('x-authenticated-')))
    return 'identity in a response'
  const nominated = listed(response.fields, 'connection')
  const removed = ({ name }: Field) => {
    const lower = name.toLowerCase()
    return UNSETTLED.has(lower) || nominated.includes(lower) || readsAsOurs(name)
  }
  const passed = (fields: readonly Field[], dated: boolean) =>
    fields
      .filter((field) => !removed(field) && (dated || field.name.toLowerCase() !== 'date'))
      .map(({ name, value }) => `${name}: ${value}`)
      .join('\n')
  const dated = single(response.fields, 'date') !== undefined
  const same = passed(answer.fields, dated) === passed(response.fields, dated)
  return same || response.kind === 'either' ? undefined : 'the response header changed'
}

/** Response lines that the sidecar sets or that belong to one connection only. */
const UNSETTLED = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'te',
  'upgrade',
  'http2-settings',
  'trailer',
  'transfer-encoding',
  'content-length',
  'x-request-id',
])

function mayContinue(expected: ExpectedRequest, reply: Reply): boolean {
  if (reply.pieces.join('').includes(' 100 ')) return true
  const asked = /100-continue/i.test(listed(expected.fields, 'expect').join())
  if (!asked) return false
  const [first] = expected.fate.kind === 'answer' ? expected.fate.answers : []
  return first !== '400 InvalidToken' && first !== '400 ExpiredToken'
}

/** What the client of a request must get of its upstream's answer. */
function responseOf({ reply, expected }: Tracked): ExpectedResponse {
  return expectedResponse(reply.pieces.join(''), reply.ending, expected.method)
}

/** Whether a connection may end without an answer: the upstream's broke off, or its request did. */
function cutIsFair(tracked: Tracked): boolean {
  const { expected, reply } = tracked
  if (expected.fate.kind !== 'forward') return false
  return responseOf(tracked).kind !== 'whole' || (expected.verdict === 'refuse' && reply.early)
}

/** Whether the upstream's connection may have gone just when the request was written: that is nobody's fault. */
function isStale({ expected, sightings }: Tracked): boolean {
  return !isRepeatable(expected) && !sightings.some(({ answered }) => answered)
}

/** Whether a request may be sent again when its connection turns out to be closed. */
function isRepeatable({ method, framing, body, verdict }: ExpectedRequest): boolean {
  const bodyless = framing === 'none' || (framing === 'length' && body === '' && verdict !== 'unfinished')
  return ['GET', 'HEAD'].includes(method) && bodyless
}

function matches(given: string, allowed: string): boolean {
  // The body of an answer to HEAD, and so its code, is not there.
  return given === allowed || (given.endsWith(' ?') && allowed.startsWith(given.slice(0, 4)))
}

/** A reply without its body, as HEAD wants it; one that is no response stays as it is. */
function headOnly(reply: Reply): Reply {
  const bytes = reply.pieces.join('')
  if (expectedResponse(bytes, reply.ending, 'HEAD').kind === 'fault') return reply
  for (let start = 0; ; ) {
    const end = bytes.indexOf('\r\n\r\n', start) + 4
    if (!/^HTTP\/1\.[01] 1/.test(bytes.slice(start, end))) return { ...reply, pieces: [bytes.slice(0, end)] }
    start = end
  }
}

/** The trials whose requests may turn up at the upstream. */
export class TrialRegister {
  readonly #byKey = new Map<string, Tracked[]>()

  add(trial: Trial): void {
    for (const tracked of trial.requests) {
      if (!tracked.expected.hasHead) continue
      const key = keyOf(tracked.expected)
      const others = this.#byKey.get(key)
      if (others === undefined) this.#byKey.set(key, [tracked])
      else others.push(tracked)
    }
  }

  delete(trial: Trial): void {
    for (const tracked of trial.requests) {
      const key = keyOf(tracked.expected)
      const others = this.#byKey.get(key)?.filter((other) => other.trial !== trial) ?? []
      if (others.length > 0) this.#byKey.set(key, others)
      else this.#byKey.delete(key)
    }
  }

  /**
   * Finds the request that a head at the upstream belongs to, and notes what is wrong with it.
   *
   * @returns undefined when no client sent it
   */
  sight(seen: SeenRequest): { readonly tracked: Tracked; readonly sighting: Sighting } | undefined {
    const candidates = this.#byKey.get(keyOf(seen)) ?? []
    const problems = candidates.map(
      (tracked) =>
        headProblem(seen, tracked.expected, tracked.trial.script.leave === 'abort') ?? repeatProblem(tracked),
    )
    const fitting = problems.indexOf(undefined)
    const tracked = candidates[Math.max(fitting, 0)]
    if (tracked === undefined) return undefined
    if (fitting < 0) tracked.trial.note(problems[0])
    const id = single(seen.fields, 'x-request-id')
    const sighting = { whole: false, answered: false, requestId: typeof id === 'object' ? id.value : '' }
    tracked.sightings.push(sighting)
    return { tracked, sighting }
  }
}

/** A request may come again only when it changes nothing, and nothing of an answer was sent the first time. */
function repeatProblem({ expected, sightings }: Tracked): string | undefined {
  if (sightings.length === 0) return undefined
  return isRepeatable(expected) && sightings.length === 1 && !sightings.some(({ answered }) => answered)
    ? undefined
    : 'one request became two at the upstream'
}

/** Notes that the body of a sighted request is whole. */
export function noteWhole(tracked: Tracked, sighting: Sighting, seen: SeenRequest): void {
  sighting.whole = true
  tracked.trial.note(bodyProblem(seen, tracked.expected))
}

function keyOf({ method, target }: { readonly method: string; readonly target: string }): string {
  return `${method} ${target}`
}
