/**
 * The requests of the clients of the fuzz run, and the upstream's responses. The seed and the number
 * of a connection decide everything that happens on it, so that one connection can be played again alone.
 */
import { ISSUER } from '../../bench/trust.ts'
import { SECOND_RESOURCE_WORDS } from './access.ts'
import { randomBasic } from './basic-logins.ts'
import { type ExpectedLogin, randomOAuthLogin } from './oauth-logins.ts'
import { createRandom, type Random } from './random.ts'
import { longName, type Reply, randomReply } from './replies.ts'
import type { CampaignTrust, Identity } from './sidecar-process.ts'

/**
 * What may become of a request. `plain`: forwarded as it was sent. `refused`: the upstream never sees it.
 * `broken`: the upstream never sees all of it. `loose`: some readers may disagree on where it ends;
 * from here on, methods and bodies of the connection are not compared.
 * `damaged`: as `loose`, and tokens may have moved between requests.
 */
type Fate = 'plain' | 'refused' | 'broken' | 'loose' | 'damaged'

type Part = 'method' | 'target' | 'version' | 'host' | 'body'

/** A request under construction. */
interface Draft {
  method: string
  target: string
  version: string
  /** Field lines without their ends. */
  lines: string[]
  /** The bytes after the head. */
  body: string
  /** The body that these bytes stand for. */
  content: string
  fate: Fate
  shifts: boolean
  /** The parts that a twist has changed: a second one could undo it. */
  readonly twisted: Set<Part>
  /** Of a login by OAuth. */
  login?: ExpectedLogin
}

/** A request as it was sent. */
export interface SentRequest {
  /** Unique, and part of the target. */
  readonly name: string
  readonly bytes: string
  readonly method: string
  readonly target: string
  readonly lines: readonly string[]
  readonly content: string
  readonly fate: Fate
  /** Whether some readers may take bytes of it for another request. */
  readonly shifts: boolean
  /** That of its token or link; `undefined` without a valid one. */
  readonly identity: Identity | undefined
  readonly reply: Reply
  /** Of a login by OAuth, whose response has the name as its request id. */
  readonly login: ExpectedLogin | undefined
}

export interface Script {
  readonly requests: readonly SentRequest[]
  readonly bytes: string
  /** Where the bytes are cut into writes, ascending. */
  readonly cuts: readonly number[]
  /** Milliseconds between two writes; long ones let an early response overtake the rest of an upload. */
  readonly pauseMs: number
  /**
   * `abort`: resets the connection after its last write; `reset`: as soon as a response has begun.
   * `cut`: some of the last bytes are never sent.
   */
  readonly leave: 'wait' | 'half-close' | 'abort' | 'reset' | 'cut'
}

const SEVERITY: readonly Fate[] = ['plain', 'loose', 'broken', 'refused', 'damaged']
const METHODS = ['GET', 'GET', 'GET', 'HEAD', 'PUT', 'PUT', 'POST', 'DELETE', 'OPTIONS', 'PATCH']
const PLAIN_NAMES = ['Accept', 'X-Amz-Meta-A', 'user-agent', 'RANGE', 'x-meta_b']
const OUR_NAMES = ['Account-Id', 'Access-Key', 'Token-Id', 'Token-Expires', 'Assertion', 'Anything']

/** What a request is about. */
const CONTENTS: readonly (readonly [weight: number, add: typeof makeLogin])[] = [
  [88, addBody],
  [6, makeLogin],
  [6, makeOAuthLogin],
]

/** Makes the script of a connection. The last request of each closes it. */
export function makeScript(seed: number, connection: number, trust: CampaignTrust): Script {
  const random = createRandom(seed, connection)
  const id = `z${connection}${random.text(4, 'abcdef')}`
  const count = random.pick([1, 1, 1, 2, 2, 3, 3, random.int(4, 8), random.int(4, 15)])
  const oddity = random.pick([0, 0.2, 0.5, 1])
  const requests = Array.from({ length: count + 1 }, (_, index) =>
    makeRequest(random, `${id}.${index}z`, trust, index === count ? 'last' : oddity),
  )
  let bytes = requests.map((request) => request.bytes).join('')
  const leave = random.chance(0.65) ? 'wait' : random.pick(['half-close', 'abort', 'reset', 'cut'] as const)
  if (leave === 'cut') {
    bytes = bytes.slice(0, random.int(1, bytes.length - 1))
  }
  const cuts = new Set<number>()
  if (random.chance(0.4)) {
    const count = random.int(1, 6)
    for (let made = 0; made < count; made++) {
      cuts.add(random.int(1, bytes.length))
    }
  }
  const pauseMs = random.pick([0, 1, 1, 20])
  return { requests, bytes, cuts: [...cuts].sort((a, b) => a - b), pauseMs, leave }
}

function makeRequest(
  random: Random,
  name: string,
  trust: CampaignTrust,
  oddity: number | 'last',
): SentRequest {
  const draft = newDraft(random, name)
  const may = (probability: number) => oddity !== 'last' && random.chance(probability)
  const content = oddity === 'last' ? addBody : random.weighted(CONTENTS)
  content(draft, random, name, trust)
  const { identity, link } = prove(draft, random, name, trust, may)
  addPlainLines(draft, random)
  twistAtTimes(draft, random, oddity)
  const { method, target, version, lines } = draft
  const sent = link === undefined ? target : link.target
  let bytes = `${[`${method} ${sent} ${version}`, ...lines].join('\r\n')}\r\n\r\n${draft.body}`
  if (oddity !== 'last' && may(0.08 * oddity)) {
    worsen(draft, 'damaged')
    bytes = damagedAround(name, bytes, random)
  }
  const { fate, shifts, login } = draft
  const reply = randomReply(random, name)
  const ofDraft = { method, target, lines, content: draft.content, fate, shifts, login }
  return { name, bytes, ...ofDraft, identity, reply }
}

function newDraft(random: Random, name: string): Draft {
  return {
    method: random.pick(METHODS),
    target: random.pick([`/b/${name}`, `/b/${name}`, `/b//${name}/%2e%2e/x?q=${random.text(3)}`]),
    version: 'HTTP/1.1',
    lines: ['Host: s'],
    body: '',
    content: '',
    fate: 'plain',
    shifts: false,
    twisted: new Set(),
  }
}

/** Adds a token, a link or an HTTP Basic login, unless the request is itself a login. Returns whose it is. */
function prove(
  draft: Draft,
  random: Random,
  name: string,
  trust: CampaignTrust,
  may: (probability: number) => boolean,
) {
  const token = random.pick(may(0.15) ? trust.bad : [...trust.good.keys()])
  const isLogin = draft.login !== undefined
  const link = !isLogin && may(0.2) ? makeLink(draft, random, name, trust) : undefined
  if (!isLogin && link === undefined && may(0.15)) {
    return { identity: addBasic(draft, random, name, trust), link }
  }
  const identity = link === undefined ? trust.good.get(token) : link.identity
  if (identity === undefined || link?.authorized) {
    worsen(draft, 'refused')
  }
  if (!isLogin && link?.authorized !== false) {
    const scheme = random.pick(['Authorization: Bearer', 'authorization: bEARER  '])
    draft.lines.splice(random.int(0, 1), 0, `${scheme} ${token}`)
  }
  return { identity, link }
}

/** By its request id, its own response is told from those of others. */
function addBasic(draft: Draft, random: Random, name: string, trust: CampaignTrust): Identity | undefined {
  const { line, identity } = randomBasic(random, trust)
  draft.lines.splice(random.int(0, 1), 0, line)
  draft.lines.push(`X-Request-Id: ${name}`)
  if (identity === undefined) {
    worsen(draft, 'refused')
  }
  return identity
}

function addPlainLines(draft: Draft, random: Random): void {
  const count = random.int(0, 3)
  for (let added = 0; added < count; added++) {
    draft.lines.push(`${random.pick(PLAIN_NAMES)}: ${random.text(5)}`)
  }
}

function twistAtTimes(draft: Draft, random: Random, oddity: number | 'last'): void {
  if (oddity === 'last') {
    draft.lines.push('Connection: close')
    return
  }
  let goesOn = random.chance(oddity)
  while (goesOn) {
    twist(draft, random)
    if (draft.login?.success === 'yes') {
      draft.login = { ...draft.login, success: 'maybe' }
    }
    goesOn = random.chance(0.3)
  }
}

/** Damages the bytes before or after the name, by which the upstream recognizes the request. */
function damagedAround(name: string, bytes: string, random: Random): string {
  const [before = '', after = ''] = bytes.split(name)
  const isEarly = random.chance(0.2)
  return isEarly ? damaged(random, before) + name + after : before + name + damaged(random, after)
}

const LINK_FAULTS = [
  'method',
  'target',
  'host',
  'twice',
  'authorized',
  'token',
  'parent',
  'expired',
  'damaged',
  'cut',
]

/** The target of a request with a link in its query, and whose it is: of none if the link is at fault. */
function makeLink(draft: Draft, random: Random, name: string, trust: CampaignTrust) {
  for (const part of ['method', 'target'] as const) {
    draft.twisted.add(part)
  }
  const fault = random.pick([...LINK_FAULTS, ...LINK_FAULTS.map(() => 'none')])
  const { method, target } = draft
  const [token, maker] = random.pick([...trust.good])
  const { accountId, accessKey, expiresAt, scope, issuer = ISSUER } = maker
  const host = random.pick(['s', 's', 's', 't'])
  if (host === 't') {
    setHost(draft, random.pick(['t:81', 'T:81']))
  }
  if (fault === 'host') {
    draft.twisted.add('host') // another host could mend it
  }
  const faults = {
    method: 'PATCHED',
    target: `${target}x`,
    host: random.pick([undefined, 'u', host === 's' ? 't' : 's']),
  }
  const request = { method, target, host }
  const bound = fault in request ? { ...request, ...pickedFrom(faults, fault) } : request
  const parent = fault === 'parent' ? {} : { parent_jti: maker.tokenId, parent_iat: 1 }
  const claims = { sub: accountId, client_id: accessKey, jti: `link ${name}`, exp: expiresAt, scope }
  const old = fault === 'expired' ? { iat: expiresAt - 90_000, exp: expiresAt - 85_000 } : {}
  const all = { ...claims, ...bound, parent_iss: issuer, ...parent, ...old }
  const link = fault === 'token' ? token : trust.mint(all, { typ: 'link+jwt' })
  const text = withFault(fault, link, random)
  const again = fault === 'twice' ? `&link_token=${link}` : ''
  const parameter = `link_token=${text}${again}`
  const sent = withParameter(target, parameter, random)
  const identity = {
    accountId,
    accessKey,
    tokenId: `link ${name}`,
    expiresAt,
    scope,
    bound: request,
  }
  // One of its characters may be damaged into itself.
  // The name of `Authorization` beside a good link may be damaged, too.
  const isGood = fault === 'none' || fault === 'authorized' || (fault === 'damaged' && text === link)
  return { target: sent, authorized: fault === 'authorized', identity: isGood ? identity : undefined }
}

/** Adds the parameter at the start or at the end of the query. */
function withParameter(target: string, parameter: string, random: Random): string {
  const [path = '', query] = target.split('?')
  const parameters = query === undefined ? [parameter] : [query, parameter]
  const ordered = random.chance(0.5) ? parameters : parameters.reverse()
  return `${path}?${ordered.join('&')}`
}

function withFault(fault: string, link: string, random: Random): string {
  if (fault === 'cut') {
    return link.slice(0, -3)
  }
  // A space before ` HTTP/1.1` changes nothing.
  return fault === 'damaged' ? damaged(random, link).trimEnd() : link
}

function worsen(draft: Draft, fate: Fate): void {
  draft.shifts ||= fate === 'loose'
  if (SEVERITY.indexOf(fate) > SEVERITY.indexOf(draft.fate)) {
    draft.fate = fate
  }
}

/** Gives most requests with a method for it a body, of a length or chunked. */
function addBody(draft: Draft, random: Random): void {
  if (['GET', 'HEAD'].includes(draft.method) ? random.chance(0.9) : random.chance(0.3)) {
    return
  }
  const content = random.pick([
    random.text(random.int(0, 200)),
    trap(random),
    random.text(random.int(1, 40)).repeat(random.int(1, 1000)),
  ])
  setContent(draft, random, content, random.chance(0.5))
}

function setContent(draft: Draft, random: Random, content: string, chunked: boolean, trailers = ''): void {
  draft.lines = draft.lines.filter((line) => !/^(?:content-length|transfer-encoding) *:/i.test(line))
  draft.lines.push(chunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${content.length}`)
  draft.content = content
  draft.body = chunked ? chunksOf(random, content, trailers) : content
}

function chunksOf(random: Random, content: string, trailers: string): string {
  let chunks = ''
  let at = 0
  while (at < content.length) {
    const part = content.slice(at, at + random.int(1, Math.max(1, content.length)))
    const digits = part.length.toString(16)
    const extension = random.chance(0.8) ? '' : random.pick([';a=b', ';name', ';q="quoted; text"'])
    chunks += `${random.pick([digits, digits.toUpperCase(), `0${digits}`])}${extension}\r\n${part}\r\n`
    at += part.length
  }
  return `${chunks}${random.pick(['0', '0', '00', '0;last=yes'])}\r\n${trailers}\r\n`
}

/** A request without a token, to be hidden in bodies: the upstream must never see it as a request. */
function trap(random: Random): string {
  const line = `${random.pick(['GET', 'DELETE', 'POST'])} /trap-${random.text(8)} HTTP/1.1`
  return `${line}\r\nHost: s\r\nX-Authenticated-Account-Id: evil\r\nContent-Length: 0\r\n\r\n`
}

/** A login, right or wrong, or a request for the time left. */
function makeLogin(draft: Draft, random: Random, name: string, trust: CampaignTrust): void {
  const login = random.pick(trust.logins)
  const utf8 = (value: unknown) => Buffer.from(JSON.stringify(value), 'utf8').toString('latin1')
  const json = utf8(login)
  const broken = ['', '{', 'null', `[${json}]`, `\xef\xbb\xbf${json}`, json + ' '.repeat(17_000)]
  const wrong = { ...login, [random.pick(['secret', 'accessKey'])]: random.pick(['x', 1, null, [], '']) }
  const content = random.pick([json, json, utf8(wrong), damaged(random, json), random.pick(broken)])
  draft.method = random.pick(['POST', 'POST', 'POST', 'PUT', 'GET', 'HEAD'])
  draft.target = `/v2/auth/token${random.pick(['', '/'])}?${name}`
  draft.lines.push(`Content-Type: ${random.pick(['application/json', 'application/json', 'text/plain'])}`)
  setContent(draft, random, content, random.chance(0.3))
  worsen(draft, 'refused')
  for (const part of ['method', 'target', 'body'] as const) {
    draft.twisted.add(part)
  }
}

/** A login by OAuth. It names itself by its request id, because its response has no other name. */
function makeOAuthLogin(draft: Draft, random: Random, name: string, trust: CampaignTrust): void {
  const { expected, lines, content } = randomOAuthLogin(random, trust)
  const method = random.pick(['POST', 'POST', 'POST', 'POST', 'PUT', 'HEAD'])
  draft.method = method
  draft.target = `/v2/oauth/token?${name}`
  draft.lines.push(`X-Request-Id: ${name}`, ...lines)
  draft.login = method === 'POST' ? expected : { ...expected, success: 'no' }
  setContent(draft, random, content, random.chance(0.3))
  worsen(draft, 'refused')
  for (const part of ['method', 'target', 'body'] as const) {
    draft.twisted.add(part)
  }
}

/** Bytes flipped, lost, doubled or moved. */
function damaged(random: Random, bytes: string): string {
  let text = bytes
  const times = random.int(1, 3)
  for (let done = 0; done < times; done++) {
    const at = random.int(0, text.length)
    const length = random.pick([1, 1, 2, 8, 30])
    const span = text.slice(at, at + length)
    const odd = random.pick(['\r', '\n', '\r\n', '\0', ' ', '\t', ':', ',', ';', '\x7f', '\xff', '0', 'A'])
    text = random.pick([
      text.slice(0, at) + odd + text.slice(at + 1),
      text.slice(0, at) + odd + text.slice(at),
      text.slice(0, at) + text.slice(at + length),
      text.slice(0, at) + span + text.slice(at),
    ])
  }
  return text
}

type Twist = (draft: Draft, random: Random) => void

/** Adds one of these lines, which `~` separates, somewhere after the first one. */
const line =
  (fate: Fate, choices: string): Twist =>
  (draft, random) => {
    draft.lines.splice(random.int(1, draft.lines.length), 0, random.pick(choices.split('~')))
    worsen(draft, fate)
  }

/** Adds a line of this name with one of these values. */
const field = (fate: Fate, name: string, values: string): Twist => {
  return line(fate, `${name}: ${values.replaceAll('~', `~${name}: `)}`)
}

/** Replaces the method or the version. */
const start =
  (part: 'method' | 'version', fate: Fate, choices: string): Twist =>
  (draft, random) => {
    draft[part] = random.pick(choices.split('~'))
    worsen(draft, fate)
  }

/** Replaces the target; `@` stands for the original one. */
const target =
  (fate: Fate, choices: string): Twist =>
  (draft, random) => {
    draft.target = random.pick(choices.split('~')).replace('@', () => draft.target)
    worsen(draft, fate)
  }

/** Replaces the host; without choices it is removed. */
const host =
  (fate: Fate, choices?: string): Twist =>
  (draft, random) => {
    setHost(draft, choices === undefined ? undefined : random.pick(choices.split('~')))
    worsen(draft, fate)
  }

/** Replaces or removes the host. */
function setHost(draft: Draft, host: string | undefined): void {
  draft.lines = draft.lines.filter((text) => !/^host:/i.test(text))
  if (host !== undefined) {
    draft.lines.push(`Host: ${host}`)
  }
}

/** Names a second resource: a word of the rule between dashes of several kinds. */
function addSecondResource(draft: Draft, random: Random): void {
  const part = () => random.pick(['amz', 'oss', 'v2', random.text(3)])
  const parts = [random.pick(['X', 'x', 'Acme']), random.pick(SECOND_RESOURCE_WORDS)]
  if (random.chance(0.6)) {
    parts.splice(1, 0, part())
  }
  if (random.chance(0.4)) {
    parts.push(part())
  }
  const [first = '', ...others] = parts
  let name = first
  for (const other of others) {
    name += random.pick(['-', '-', '_', '.', '--']) + random.pick([other, other.toUpperCase()])
  }
  line('plain', `${random.pick([name, name, parts[1] ?? name])}: ${random.pick(['/b/x', '/c', 'on'])}`)(
    draft,
    random,
  )
}

/** Makes a request that creates, if the condition holds and counts. */
function makeCreation(draft: Draft, random: Random): void {
  const choices = ['PUT', 'PUT', 'PUT', 'MKCOL']
  draft.method = random.pick(choices)
  const condition = random.pick(['*', '*', '*', '"x"', '*, "x"', '"*"', '*\r\nIf-None-Match: *'])
  draft.lines.push(`${random.pick(['If-None-Match', 'if-none-match', 'If_None_Match'])}: ${condition}`)
  if (random.chance(0.4) && !draft.twisted.has('target')) {
    draft.target += random.pick(['?', '?acl', '?policy', '?tagging&x=1', '?lifecycle', ';acl'])
    draft.twisted.add('target')
  }
  if (random.chance(0.3)) {
    draft.lines.push(random.pick(RIGHTS))
  }
  worsen(draft, draft.method === 'PUT' ? 'plain' : 'loose')
}

const RIGHTS = [
  'X-Amz-Acl: public-read',
  'x_oss_grant_read: a',
  'X-Container-Read: .r:*',
  'X-Container-Meta-K: v',
]

/** The value of this name alone. */
const pickedFrom = (values: Readonly<Record<string, unknown>>, name: string) => ({ [name]: values[name] })

/** Puts one of these texts after `Transfer-Encoding: chunked`. */
const chunks =
  (fate: Fate, choices: string): Twist =>
  (draft, random) => {
    setContent(draft, random, '', true)
    draft.body = random.pick(choices.split('~'))
    worsen(draft, fate)
  }

/** A name with another case, or with `_` or `.` in the place of `-`. */
function respelled(name: string, random: Random, marks: readonly string[]): string {
  const spelled = random.pick([name, name.toLowerCase(), name.toUpperCase()])
  return spelled.replaceAll('-', () => random.pick(marks))
}

const TRAILERS = [
  'X-Sum: 1',
  'X-Authenticated-Account-Id: evil',
  'x_authenticated_token-id: evil',
  'Destination: /c',
  'X-Amz-Copy-Source: /c',
  'X-Acme_Source: /c',
  'Overwrite: T',
  'X-Amz-Acl: private',
]
const LAST = '0\r\n\r\n'

/** A twist of a part is applied to a request once at most, because a second one could undo the first. */
const TWISTS: readonly (readonly [weight: number, twist: Twist, part?: Part])[] = [
  // Names of the identity, names that read as framing, and lines that the sidecar replaces.
  [
    8,
    (draft, random) => {
      const name = respelled(`X-Authenticated-${random.pick(OUR_NAMES)}`, random, ['-', '-', '_', '.'])
      line('plain', `${name}: evil`)(draft, random)
    },
  ],
  [3, line('refused', 'Transfer_Encoding: 5~content_length: 5~TRANSFER_ENCODING: chunked')],
  [4, line('plain', 'X-Forwarded-For: 6.6.6.6~Forwarded: for=6.6.6.6~X-Forwarded-Host: evil')],
  [1, (draft, random) => line('plain', `${longName(random)}: v`)(draft, random)],
  [1, (draft, random) => line('plain', `Connection: ${longName(random)}`)(draft, random)],
  [3, line('plain', 'x-amz-meta-my_key: v~X_Plain: a~x-empty:~X-Plain:no space~X-Eight-Bit: \xe4\xff')],
  [2, field('plain', 'X-Request-Id', `ok-1~a b~~${'x'.repeat(129)}`)],
  [3, line('refused', 'Authorization: Bearer x~authorization: Basic eA==~Authorization:')],
  [2, line('plain', 'X-HTTP-Method-Override: DELETE~X-Original-URL: /admin~User-Agent: kube-probe/1.30')],
  // Framing.
  [4, field('refused', 'Content-Length', '+5~0x5~5,5~~5;a~5.0~1e1~\x0b5~5 5~-0'), 'body'],
  [3, field('loose', 'Content-Length', '05~5 ~3~60~0'), 'body'],
  [1, line('loose', 'Transfer-Encoding: chunked'), 'body'],
  [4, field('refused', 'Transfer-Encoding', 'gzip, chunked~chunked, identity~identity~chunked;q=1~'), 'body'],
  [4, field('refused', 'Transfer-Encoding', '\x0bchunked~xchunked~"chunked"~chunked\0~\r\n chunked'), 'body'],
  [
    2,
    line('refused', `Transfer-Encoding : chunked~${'Transfer-Encoding: chunked\r\n'.repeat(2).trim()}`),
    'body',
  ],
  [4, (draft, random) => setContent(draft, random, trap(random), random.chance(0.7)), 'body'],
  [2, chunks('broken', `0x5\r\nhello\r\n${LAST}~+5\r\nhello\r\n${LAST}~-5\r\nhello\r\n${LAST}`), 'body'],
  [
    2,
    chunks('broken', `fffffffffffffffff\r\nhello\r\n${LAST}~5\r\nhello${LAST}~5\rhello\r\n${LAST}`),
    'body',
  ],
  [1, chunks('broken', `5\r\nhelloGET /trap-x HTTP/1.1\r\nHost: s\r\n\r\n${LAST}`), 'body'],
  [
    1,
    chunks('loose', `5 \r\nhello\r\n${LAST}~00000000000000005\r\nhello\r\n${LAST}~5\nhello\n0\n\n`),
    'body',
  ],
  [1, chunks('loose', `5\r\nhello\n${LAST}~5;a\nb\r\nhello\r\n${LAST}~5\r\nhello\r\n0\r\n`), 'body'],
  [
    1,
    chunks('loose', `5;${'x'.repeat(20_000)}\r\nhello\r\n${LAST}~${'1\r\na\r\n'.repeat(40)}${LAST}`),
    'body',
  ],
  [3, (draft, random) => setContent(draft, random, 'body', true, `${random.pick(TRAILERS)}\r\n`), 'body'],
  [
    3,
    (draft, random) => {
      draft.body += random.pick(['x', '\r\n', '\0', 'GE', trap(random), '\r\n\r\n'])
      worsen(draft, 'loose')
    },
    'body',
  ],
  // Start lines and hosts.
  [2, target('plain', '/@~@/../x//y/./z~@%00%2f%2E%2e%zz%~@;x=1:80~@?/v2/auth/token'), 'target'],
  [2, target('plain', '/v2/auth/token/..;@~/v2/auth/%74oken@~//v2/auth/token@'), 'target'],
  [2, target('refused', `@#fragment~@\x01~x@~@${'l'.repeat(17_000)}`), 'target'],
  [2, target('refused', 'http://evil@~http://s:80:80@~http://[::1@~ftp://s@'), 'target'],
  [3, target('loose', 'http://s@~HTTP://S@~@\xe4\xff~@\\|"<>^`{}'), 'target'],
  [2, start('method', 'refused', 'TRACE~CONNECT~G\0T~GE T~'), 'method'],
  [2, start('method', 'loose', 'TRACK~get~PROPFIND~M-SEARCH~PRI~MKCOL'), 'method'],
  [2, start('version', 'refused', 'HTTP/1.2~HTTP/2.0~http/1.1~HTTP/11~'), 'version'],
  [2, start('version', 'loose', 'HTTP/1.0~HTTP/1.1 '), 'version'],
  [3, host('refused', '~a, b~u@h~h/p~h?x'), 'host'],
  [4, host('plain', 'S~s:80~s:~t:81~T:81~t~t:82~s.~b.s~ss~127.0.0.1~[::1]:81'), 'host'],
  [
    1,
    (draft, random) => {
      if (draft.twisted.has('host')) {
        return
      }
      const authority = random.pick(['u', 's:80', 'S', 't:81', 'b.s'])
      setHost(draft, authority)
      draft.target = `http://${random.pick([authority, authority.toUpperCase()])}${draft.target}`
      draft.twisted.add('host')
      worsen(draft, 'loose')
    },
    'target',
  ],
  [1, line('refused', 'host: s\r\nHost: s'), 'host'],
  // HTTP/1.0 needs no host and has no expectations, so these take the part of the version.
  [
    1,
    (draft, random) => {
      host('refused')(draft, random)
      draft.twisted.add('host')
    },
    'version',
  ],
  [2, line('refused', 'Expect: 200-ok'), 'version'],
  [2, line('plain', 'Expect: 100-continue'), 'version'],
  // Connection options and upgrades.
  [3, field('refused', 'Connection', 'host~Authorization~content-length~x-authenticated-account-id')],
  [3, field('loose', 'Connection', 'close~keep-alive~X-Plain, x-meta_b~~Upgrade\r\nUpgrade: websocket')],
  [
    2,
    line(
      'loose',
      'Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk~Upgrade: websocket~TE: trailers',
    ),
  ],
  // Second paths and other methods.
  [2, field('plain', 'X-Amz-Copy-Source', '/b/x~b/x?versionId=1~/c/x~b/%2e%2e/c~http://s/c~http://s/b/x')],
  [2, field('plain', 'Destination', '/b/x~/c~http://other/b/x')],
  [1, line('plain', 'X-HTTP-Method-Override: DELETE~x_http_method: DELETE~X_Copy_From: /c')],
  [4, addSecondResource],
  [10, makeCreation, 'method'],
  [2, (draft, random) => line('plain', RIGHTS.join('~'))(draft, random)],
  [2, field('plain', 'Overwrite', 'F~f~T~F\r\nOverwrite: T')],
  [2, target('plain', '@?acl~@?policy~@?~@?tagging=x~@;acl'), 'target'],
  [1, start('method', 'loose', 'COPY~MOVE~REPORT~MKCOL'), 'method'],
  // Lines that are none, and large heads.
  [2, line('refused', 'X-Folded: a\r\n b~X-Space : a~: no name~no colon~X-Nul: a\0b~X-Cr: a\rb~X\xe4: a')],
  [1, line('loose', 'X-Lf: a\nX-Authenticated-Account-Id: evil~ X-Space: a~X-Del: a\x7fb')],
  [1, line('refused', `X-Large: ${'z'.repeat(40_000)}~${'a: b\r\n'.repeat(220).trim()}`)],
]

function twist(draft: Draft, random: Random): void {
  const usable = TWISTS.filter(([, , part]) => part === undefined || !draft.twisted.has(part))
  const [apply, part] = random.weighted(
    usable.map(([weight, apply, part]) => [weight, [apply, part] as const] as const),
  )
  apply(draft, random)
  if (part !== undefined) {
    draft.twisted.add(part)
  }
}
