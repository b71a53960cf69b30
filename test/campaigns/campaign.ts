/**
 * Raw clients on one side, a recording upstream on the other, and a judge of its records.
 *
 * The judge does not know what a proxy admits.
 * It knows what was sent: a request at the upstream must be exactly one request of one client,
 * sent with a valid token, with the identity of that token and no other, and with its bytes.
 */
import { connect, createServer, type Socket } from 'node:net'
import type { Field, Head, Response } from '../support/http-text.ts'
import { readBody, readHead, readResponse, valuesOf } from '../support/http-text.ts'
import { folded, isBound, isJudged, isWithin } from './access.ts'
import { basicIdentity, isLoginNow } from './basic-logins.ts'
import { isOAuthBody, loginProblem } from './oauth-logins.ts'
import { NAME_HEADER, type Reply } from './replies.ts'
import type { Script, SentRequest } from './requests.ts'
import type { CampaignTrust, Identity } from './sidecar-process.ts'

/**
 * How long a client waits for its connection to end, in milliseconds:
 * longer than every timeout of the sidecar.
 */
const PATIENCE_MS = 25_000
const IDENTITY_PREFIX = 'x-authenticated-'
/** The values that clients send in lines that the sidecar must drop or replace. */
const FORGED = /^(?:evil|6\.6\.6\.6|for=6\.6\.6\.6)$/

/** Below libuv 1.52, Node reports a reset that arrives together with the last data as a clean end. */
const SEES_RESETS = Number(process.versions.uv.split('.')[1]) >= 52

/** The name of a request, in its target and in the path of a log line. */
const NAME_IN_TARGET = /z\d+[a-f]{4}\.\d+z/

/** The account that has limits, if the campaign has any. */
export const LIMITED_ACCOUNT = 'acme'

/** A request at the upstream. `sent`: the same as a client has sent it. */
interface Arrival {
  readonly method: string
  readonly target: string
  readonly head: Head
  readonly sent: Tracked | undefined
}

/** A request that a client sends, and what has become of it. */
interface Tracked {
  readonly request: SentRequest
  readonly script: Script
  /** Whether it or an earlier request of the connection may have shifted the framing, or moved tokens. */
  readonly loose: boolean
  /** Whether an earlier request may have moved tokens between requests. */
  readonly damaged: boolean
  arrivals: number
  /** The upstream has begun to respond. */
  answered: boolean
  /** The sidecar has refused it, because its account is over a limit. */
  limited: boolean
  seenMethod: string
}

export async function startCampaign(trust: CampaignTrust) {
  const tracked = new Map<string, Tracked>()
  /** Requests that arrived completely at the upstream, and responses that clients received, by status. */
  const counts = new Map<string, number>()
  const violations: string[] = []
  const sockets = new Set<Socket>()
  const report = (what: string, bytes = '') =>
    violations.push(bytes === '' ? what : `${what}: ${JSON.stringify(redacted(bytes.slice(0, 600)))}`)
  const count = (what: string) => counts.set(what, (counts.get(what) ?? 0) + 1)

  /** Whose identity a request at the upstream has: that of a token, or one of `others`. */
  function callerOf(fields: readonly Field[], others: readonly Identity[]): Identity | undefined {
    const [tokenId = ''] = valuesOf(fields, `${IDENTITY_PREFIX}token-id`)
    const all = [...trust.good.values(), ...others]
    // A login by HTTP Basic has a token id of the sidecar's choice.
    return all.find((identity) => identity.isBasic || encoded(identity.tokenId) === tokenId)
  }

  /** A violation of a request that arrived at the upstream, from its head alone. */
  function headProblem(arrival: Arrival): string | undefined {
    const { head, sent } = arrival
    if (sent === undefined) {
      return 'a request that no client sent'
    }
    const { request, loose } = sent
    const { fields } = head
    if (request.fate === 'refused') {
      return 'a request that had to be refused'
    }
    const repeatProblem = wrongArrival(arrival, sent)
    if (repeatProblem !== undefined) {
      return repeatProblem
    }
    const identities = possibleIdentities(sent)
    if (!identities.some((identity) => hasIdentity(fields, identity))) {
      return 'without the identity of its token'
    }
    const problem = forwardedLineProblem(fields) ?? accessProblem(arrival, identities)
    if (problem !== undefined || loose) {
      return problem
    }
    return differenceFromSent(arrival, request)
  }

  /** A damaged script may have moved a token from one request to another. */
  function possibleIdentities({ damaged, script, request }: Tracked): Identity[] {
    if (!damaged) {
      return request.identity === undefined ? [] : [request.identity]
    }
    const ofTokens = [...trust.good]
      .filter(([token]) => script.bytes.includes(token))
      .map(([, identity]) => identity)
    const ofLogins = /basic/i.test(script.bytes) ? trust.logins.map(basicIdentity) : []
    return [...ofTokens, ...ofLogins, ...script.requests.flatMap(({ identity }) => identity ?? [])]
  }

  function accessProblem(arrival: Arrival, identities: readonly Identity[]): string | undefined {
    const { method, target, head } = arrival
    const { fields } = head
    const caller = callerOf(fields, identities)
    const seen = { method, target, fields }
    if (caller?.bound !== undefined && !isBound(caller.bound, seen)) {
      return 'a request that its link does not allow'
    }
    if (caller?.scope !== undefined && !isWithin(caller.scope, seen)) {
      return 'a request outside the scope of its token'
    }
    return undefined
  }

  const sentTo = (target: string) => tracked.get(NAME_IN_TARGET.exec(target)?.[0] ?? '')

  function onArrival(head: Head): Arrival {
    const [method = '', target = ''] = head.start.split(' ')
    const sent = sentTo(target)
    if (sent !== undefined) {
      if (sent.request.identity?.isBasic) {
        count('HTTP Basic at the upstream')
      }
      sent.arrivals++
      sent.seenMethod = method
    }
    const arrival = { method, target, head, sent }
    const problem = /^\S+ \S+ HTTP\/1\.1$/.test(head.start) ? headProblem(arrival) : 'a malformed start line'
    if (problem !== undefined) {
      report(`at the upstream: ${problem}`, lines(head))
    }
    return arrival
  }

  function mustNotPass(trailer: Field, caller: Identity | undefined): boolean {
    const isRestricted = caller?.scope !== undefined || caller?.bound !== undefined
    return folded(trailer.name).startsWith(IDENTITY_PREFIX) || (isRestricted && isJudged(trailer))
  }

  function onWhole({ sent, head }: Arrival, body: Buffer, trailers: readonly Field[]): void {
    const identity = sent?.request.identity
    const caller = callerOf(head.fields, identity === undefined ? [] : [identity])
    for (const trailer of trailers) {
      if (mustNotPass(trailer, caller)) {
        report(`at the upstream: the trailer ${trailer.name}`, lines(head))
      }
    }
    count('complete at the upstream')
    if (sent?.request.fate === 'broken') {
      report('at the upstream: a broken body is complete', lines(head))
    }
    if (sent !== undefined && !sent.loose && body.toString('latin1') !== sent.request.content) {
      report(`at the upstream: another body (${body.length} bytes)`, lines(head))
    }
  }

  function serve(socket: Socket): void {
    sockets.add(socket)
    let bytes = Buffer.alloc(0)
    let arrival: Arrival | undefined
    let ended = false
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (chunk) => {
      bytes = Buffer.concat([bytes, chunk])
      let hasRead = true
      while (hasRead && !ended && bytes.length > 0) {
        arrival ??= readArrival()
        hasRead = arrival !== undefined && !ended && readWhole(arrival)
        if (hasRead) {
          arrival = undefined
        }
      }
    })
    /** Returns undefined until the head is complete. */
    function readArrival(): Arrival | undefined {
      const head = readHead(bytes, 0)
      if (head === 'bad' || (head === undefined && bytes.length > 100_000)) {
        refuse('a malformed request')
        return undefined
      }
      if (head === undefined) {
        return undefined
      }
      const begun = onArrival(head)
      if (isAnsweredEarly(begun)) {
        answer(begun)
      }
      return begun
    }
    /** Returns false until the body is complete. */
    function readWhole(begun: Arrival): boolean {
      const body = readBody(bytes, begun.head)
      if (body === 'bad') {
        refuse('malformed framing')
        return false
      }
      if (body === undefined) {
        return false
      }
      onWhole(begun, body.content, body.trailers)
      bytes = bytes.subarray(body.end)
      if (!isAnsweredEarly(begun)) {
        answer(begun)
      }
      return true
    }
    function refuse(what: string): void {
      report(`at the upstream: ${what}`, bytes.toString('latin1'))
      socket.destroy()
    }
    function answer({ method, sent }: Arrival): void {
      if (sent === undefined) {
        socket.destroy()
        return
      }
      const { pieces, ending } = forMethod(sent.request.reply, method)
      sent.answered ||= pieces.join('') !== ''
      ended ||= ending !== 'keep'
      for (const piece of pieces) {
        socket.write(piece, 'latin1')
      }
      endAs(ending, socket)
    }
  }

  const server = createServer({ noDelay: true }, serve)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()

  const isHeadResponse = (fields: readonly Field[], rest: string): boolean => {
    const [name = ''] = valuesOf(fields, NAME_HEADER)
    return name === '' ? !rest.startsWith('{') : tracked.get(name)?.seenMethod === 'HEAD'
  }

  /** A problem of a response of the upstream, beside its place among the others. */
  function contentProblem(response: Response, sent: Tracked | undefined, ending: Ending): string | undefined {
    const reply = sent?.request.reply ?? NO_REPLY
    const { good, content } = forMethod(reply, sent?.seenMethod ?? '')
    if (response.complete && good && response.content.toString('latin1') !== content) {
      return 'with another body'
    }
    const looksComplete = ending === 'closed' && !response.complete && !response.framed
    return SEES_RESETS && looksComplete && reply.ending === 'reset' ? 'complete that was reset' : undefined
  }

  /** A problem of the response to a login by OAuth, which has the name of its request as its id. */
  function oauthProblem({ status, fields, content, complete }: Response): string | undefined {
    const [id = ''] = valuesOf(fields, 'x-request-id')
    const sent = tracked.get(id)
    const login = sent?.request.login
    if (sent === undefined || login === undefined || !complete || sent.loose || sent.damaged) {
      return undefined
    }
    count(`OAuth ${status}`)
    const isIncomplete = sent.script.leave === 'cut' && login.success === 'yes'
    const expected = isIncomplete ? { ...login, success: 'maybe' as const } : login
    return loginProblem(expected, { status, fields, body: content.toString('latin1') })
  }

  /** A problem of the response to a login by HTTP Basic. Its request id is the name of the request. */
  function basicProblem({ status, fields }: Response): string | undefined {
    const [id = ''] = valuesOf(fields, 'x-request-id')
    const sent = tracked.get(id)
    if (sent === undefined || sent.loose || sent.request.identity?.isBasic !== true) {
      return undefined
    }
    return status === 401 ? 'to a right login that is refused' : undefined
  }

  function responseProblem(response: Response, script: Script, ending: Ending): string | undefined {
    const [name] = valuesOf(response.fields, NAME_HEADER)
    count(name === undefined ? `own ${response.status}` : 'from the upstream')
    if (/poison/.test(name ?? response.content.toString('latin1'))) {
      return 'that no client asked for'
    }
    if (name !== undefined) {
      return contentProblem(response, tracked.get(name), ending)
    }
    return (
      ownProblem(response) ??
      oauthProblem(response) ??
      basicProblem(response) ??
      limitProblem(response, script, trust) ??
      contentProblem(response, undefined, ending)
    )
  }

  function orderProblem(responses: readonly Response[], names: readonly string[]): string | undefined {
    const answered = responses.map(({ fields }) => valuesOf(fields, NAME_HEADER)[0])
    const brokenAt = answered.findIndex((name) => tracked.get(name ?? '')?.request.fate === 'broken')
    if (brokenAt !== -1 && brokenAt < answered.length - 1) {
      return 'after the complete one to a request whose body is broken'
    }
    const places = answered.flatMap((name) => (name === undefined ? [] : names.indexOf(name)))
    const isOrdered = places.every((place, at) => place > (places[at - 1] ?? -1))
    return isOrdered ? undefined : 'out of order, or of another client'
  }

  /** Judges the responses that a client received. */
  function judgeClient(script: Script, received: string, ending: Ending): void {
    const names = script.requests.map(({ name }) => name)
    const responses = readResponses(Buffer.from(received, 'latin1'), isHeadResponse)
    if (responses === 'bad') {
      report(`${names[0]}: a client received malformed bytes`, received)
      return
    }
    const complain = (problem: string | undefined) => {
      if (problem !== undefined) {
        report(`${names[0]}: a client received a response ${problem}`, received)
      }
    }
    for (const response of responses) {
      complain(responseProblem(response, script, ending))
    }
    complain(orderProblem(responses, names))
    if (ending === 'closed' && lacksResponses(script, responses)) {
      report(`${names[0]}: ${names.length} plain requests got ${responses.length} responses`, received)
    }
  }

  return {
    upstreamPort: typeof address === 'object' && address !== null ? address.port : 0,
    counts,
    violations,
    /** Plays a script against a proxy and judges what its client received. */
    async play(script: Script, port: number) {
      let loose = false
      let damaged = false
      for (const request of script.requests) {
        damaged ||= request.fate === 'damaged'
        loose ||= damaged || request.shifts
        tracked.set(request.name, {
          request,
          script,
          loose,
          damaged,
          arrivals: 0,
          answered: false,
          limited: false,
          seenMethod: '',
        })
      }
      const { received, ending } = await send(script, port)
      // Node 20 to 26 does not parse what a client pipelines behind an offer to upgrade that is declined.
      const offersUpgrade = script.requests.some(({ bytes }) => /^connection: *upgrade/im.test(bytes))
      if (ending === 'hung' && offersUpgrade) {
        count('without a response behind an offer to upgrade')
      } else if (ending === 'hung') {
        report(`${script.requests[0]?.name}: the connection hangs`, received)
      } else {
        judgeClient(script, received, ending)
      }
      // Requests of this connection may still arrive, and must be recognized.
      setTimeout(() => {
        for (const { name } of script.requests) {
          tracked.delete(name)
        }
      }, 10_000).unref()
    },
    /** Judges a refusal by fair use that the log reports. */
    onLimited(account: unknown, path: string) {
      violations.push(...refusalProblems(account, sentTo(path)))
    },
    close() {
      server.close()
      for (const socket of sockets) {
        socket.destroy()
      }
    },
  }
}

/** Whether a proxy may send the request again: it has a safe method and no body. */
const isRepeatable = ({ method, head }: Arrival) =>
  (method === 'GET' || method === 'HEAD') && readBody(Buffer.alloc(0), { ...head, end: 0 }) !== undefined

/** Why the request may not arrive now, although it was sent. */
function wrongArrival(arrival: Arrival, { arrivals, answered, limited }: Tracked): string | undefined {
  if (limited) {
    return 'a request of an account over its limit'
  }
  const isWrongRepeat = arrivals > 1 && (answered || !isRepeatable(arrival))
  return isWrongRepeat ? 'a request arrived twice' : undefined
}

/** Returns the problems of a refusal by fair use, and marks the request as over the limit. */
function refusalProblems(account: unknown, sent: Tracked | undefined): string[] {
  if (account !== LIMITED_ACCOUNT) {
    return [`a refusal by fair use for ${account}, which has no limits`]
  }
  if (sent === undefined || sent.loose) {
    return []
  }
  sent.limited = true
  return sent.arrivals > 0 ? [`${sent.request.name}: a request over a limit has arrived`] : []
}

/** The names that only the sidecar may write, with values that only clients write (`FORGED`). */
const OWN_NAMES = /^(?:x-authenticated-|x-forwarded-(?:for|host|proto|port)$|forwarded$)/

function forwardedLineProblem(fields: readonly Field[]): string | undefined {
  for (const { name, value } of fields) {
    if (folded(name) === 'authorization') {
      return 'the token was forwarded'
    }
    if (OWN_NAMES.test(folded(name)) && FORGED.test(value)) {
      return `${name} from the client`
    }
  }
  const repeated = ['host', 'x-request-id'].find((name) => valuesOf(fields, name).length !== 1)
  return repeated === undefined ? undefined : `not exactly one ${repeated}`
}

/** The lines that no part of the sidecar adds, changes or removes. */
const KEPT_LINES = /^(?:accept|range|user-agent|x-amz|x-meta|x_plain|x-empty|x-eight)/i

function differenceFromSent({ method, target, head }: Arrival, request: SentRequest): string | undefined {
  if (method !== request.method) {
    return 'another method'
  }
  if (target !== request.target.replace(/^https?:\/\/[^/]*/i, '')) {
    return 'another target'
  }
  const arrivedLines = head.fields.map(({ name, value }) => `${name}: ${value}`.trim())
  const sentLines = request.lines.map((line) => line.replace(/: */, ': ').trim())
  const kept = (lines: readonly string[]) => lines.filter((line) => KEPT_LINES.test(line)).join('\n')
  return kept(arrivedLines) === kept(sentLines) ? undefined : 'other header lines'
}

const NO_REPLY: Reply = { pieces: [], ending: 'close', good: false, content: '', early: false }

function endAs(ending: Reply['ending'], socket: Socket): void {
  if (ending === 'close') {
    socket.end()
  } else if (ending === 'reset') {
    setTimeout(() => socket.resetAndDestroy(), 5)
  }
}

const isAnsweredEarly = ({ sent }: Arrival) => sent?.request.reply.early === true

/** Whether plain requests were left without a response, and no response announced the end. */
function lacksResponses({ requests, leave }: Script, responses: readonly Response[]): boolean {
  const isPlain = requests.every(({ fate, reply }) => fate === 'plain' && reply.good)
  const isAnnounced = responses.some(({ fields }) => valuesOf(fields, 'connection').includes('close'))
  return isPlain && leave === 'wait' && !isAnnounced && responses.length < requests.length
}

/** A good reply to HEAD ends with its final response's head. */
function forMethod(reply: Reply, method: string): Reply {
  if (method !== 'HEAD' || !reply.good) {
    return reply
  }
  const bytes = reply.pieces.join('')
  const interim = bytes.startsWith('HTTP/1.1 103') ? bytes.indexOf('\r\n\r\n') + 4 : 0
  return { ...reply, pieces: [bytes.slice(0, bytes.indexOf('\r\n\r\n', interim) + 4)], content: '' }
}

function hasIdentity(fields: readonly Field[], identity: Identity): boolean {
  const expected = new Map([
    ['account-id', encoded(identity.accountId)],
    ['access-key', encoded(identity.accessKey)],
    ['token-id', encoded(identity.tokenId)],
    ['token-expires', String(identity.expiresAt)],
  ])
  if (identity.isBasic) {
    const found = (name: string) => valuesOf(fields, IDENTITY_PREFIX + name).join()
    const tokenId = found('token-id')
    const expires = found('token-expires')
    expected.set('token-id', isLoginNow(tokenId, expires) ? tokenId : 'that of a login')
    expected.set('token-expires', expires)
  }
  if (identity.scope !== undefined) {
    expected.set('scope', identity.scope)
  }
  const lines = fields.filter(({ name }) => folded(name).startsWith(IDENTITY_PREFIX))
  const isRight = ([name, value]: [string, string]) =>
    valuesOf(fields, IDENTITY_PREFIX + name).join() === value
  return lines.length === expected.size && [...expected].every(isRight)
}

/** Percent-encodes every UTF-8 byte outside `!` to `~`, and `%`. */
function encoded(text: string): string {
  const byte = (value: number) =>
    value < 0x21 || value > 0x7e || value === 0x25
      ? `%${value.toString(16).toUpperCase().padStart(2, '0')}`
      : String.fromCharCode(value)
  return [...Buffer.from(text, 'utf8')].map(byte).join('')
}

/** Reads the responses that a client received up to the end of its connection, without interim ones. */
function readResponses(bytes: Buffer, isHead: Parameters<typeof readResponse>[2]): Response[] | 'bad' {
  const responses: Response[] = []
  let at = 0
  while (at < bytes.length) {
    const response = readResponse(bytes, at, isHead)
    if (response === 'bad') {
      return 'bad'
    }
    if (response === undefined) {
      return /^HTTP\/1\.1 |^H?T?T?P?\/?1?\.?1?$/.test(bytes.toString('latin1', at)) ? responses : 'bad'
    }
    at = response.end
    if (response.status >= 200) {
      responses.push(response)
    }
  }
  return responses
}

/** Only clients of the limited account may be over a limit. */
function limitProblem({ status }: Response, { requests, bytes }: Script, trust: CampaignTrust) {
  if (status !== 429 || requests.some(({ identity }) => identity?.accountId === LIMITED_ACCOUNT)) {
    return undefined
  }
  // A damaged script may have moved a token.
  const tokens = [...trust.good].filter(([, { accountId }]) => accountId === LIMITED_ACCOUNT)
  const holdsToken = tokens.some(([token]) => bytes.includes(token))
  return holdsToken ? undefined : 'of a limit that its account does not have'
}

/** The problem of a response by the sidecar: it must be JSON with a length, a code and a message. */
function ownProblem({ status, fields, content, complete }: Response): string | undefined {
  const value = (name: string) => valuesOf(fields, name).join()
  if (value('content-type') !== 'application/json') {
    return `of its own without JSON (${status})`
  }
  if (value('content-length') === '') {
    return `of its own without a length (${status})`
  }
  if (value('cache-control') !== 'no-store') {
    return `of its own that may be stored (${status})`
  }
  if ((status === 503 || status === 429) && value('retry-after') === '') {
    return 'of its own without Retry-After'
  }
  const challenges = valuesOf(fields, 'www-authenticate')
  if (status === 401 && !(challenges.length === 1 && /^Basic realm="storage"/.test(challenges[0] ?? ''))) {
    return `of its own without its challenge (${status})`
  }
  if (!complete || content.length === 0) {
    return undefined
  }
  return ownBodyProblem(status, content.toString('latin1'))
}

function ownBodyProblem(status: number, body: string): string | undefined {
  try {
    const json = JSON.parse(body)
    if (isOAuthBody(status, json)) {
      return undefined
    }
    const { code, message, expirationSec } = json
    if (status === 200) {
      return Number.isInteger(expirationSec) ? undefined : 'of its own without expirationSec'
    }
    if (typeof code === 'string' && typeof message === 'string' && !/eyJ|127\.0\.0\.1|\n/.test(message)) {
      return undefined
    }
  } catch {}
  return `of its own with another body (${status})`
}

type Ending = 'closed' | 'reset' | 'aborted' | 'hung'

/** Plays the client's side of a script. */
function send(script: Script, port: number): Promise<{ received: string; ending: Ending }> {
  return new Promise((resolve) => {
    let received = ''
    let sent = 0
    let piece = 0
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true })
    socket.setEncoding('latin1')
    const settle = (ending: Ending) => {
      clearTimeout(patience)
      if (ending === 'aborted') {
        socket.resetAndDestroy()
      } else {
        socket.destroy()
      }
      resolve({ received, ending })
    }
    const patience = setTimeout(settle, PATIENCE_MS, 'hung')
    const write = () => {
      const end = script.cuts[piece] ?? script.bytes.length
      piece++
      socket.write(script.bytes.slice(sent, end), 'latin1')
      sent = end
      if (sent < script.bytes.length) {
        setTimeout(write, script.pauseMs)
      } else if (script.leave === 'abort') {
        const delayMs = script.bytes.length % 5 // another one for each script
        setTimeout(settle, delayMs, 'aborted')
      } else if (script.leave !== 'wait' && script.leave !== 'reset') {
        socket.end()
      }
    }
    socket.on('connect', write)
    socket.on('data', (text: string) => {
      received += text
      if (script.leave === 'reset') {
        settle('aborted')
      }
    })
    socket.on('end', () => settle('closed'))
    socket.on('error', () => settle('reset'))
    socket.on('close', () => settle('closed'))
  })
}

const lines = ({ start, fields }: Head) =>
  [start, ...fields.map(({ name, value }) => `${name}: ${value}`)].join('\r\n')

/** Without the signatures of tokens: reports are pasted into issues. */
const redacted = (text: string) => text.replace(/(eyJ[\w-]+\.[\w-]{10})[\w-]+\.[\w-]+/g, '$1…')
