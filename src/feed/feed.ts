/**
 * The feed: serves the credentials and revocations of the sidecar's own store to the sidecars of a fleet,
 * which so need no database. `credentials/feed/` is the follower's side, and has the format.
 * In: requests for `/feed` of the admin listener. Out: the whole state, the changes since the version of the
 * follower, or that there are none, for which a follower may wait. Never a secret or a hash of one.
 *
 *   request.ts    reads a request
 *   proofs.ts     who may follow
 *   diff.ts       the changes between two states, as functions
 *   history.ts    the last versions with their changes
 *   documents.ts  the bodies
 *   fan-out.ts    answers many followers
 */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AuthStore, StoreState } from '../auth/auth-store.ts'
import { ERRORS, type PublicError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { type Problem, problemsAt } from '../config/config.ts'
import { readBearerToken } from '../files/bearer-token.ts'
import type { AdminRoom, AdminRoute, StatusLine } from '../ops/admin-room.ts'
import type { StatusProblem } from '../ops/problems.ts'
import type { Windows } from '../ops/samples.ts'
import { openPolledFiles } from '../reload/polled-files.ts'
import type { Reloadable, ReloadResult } from '../reload/reloadable.ts'
import type { RoomMetric } from '../room.ts'
import {
  type Changes,
  diffCredentials,
  diffRevocations,
  touchedCredentials,
  touchedRevocations,
} from './diff.ts'
import { Documents, type Encoding } from './documents.ts'
import { BodyWriter, ResponseTurns } from './fan-out.ts'
import { History } from './history.ts'
import { FEED_METRICS, FEED_RESPONSES, type FeedResponse } from './metrics.ts'
import { type ProofOptions, Proofs, presentedToken } from './proofs.ts'
import { type FeedRequest, readFeedRequest } from './request.ts'

const PATH = '/feed'
const SUBJECT = 'feed'
const TOKEN_SETTING = 'feed.tokenFile'

export interface FeedOptions extends Pick<ProofOptions, 'config' | 'authData' | 'now'> {
  readonly store: AuthStore
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
}

/** Never rejects. Polls the file of the token only after `start` is called. */
export async function openFeed(options: FeedOptions): Promise<Loaded<Feed, Problem>> {
  const { tokenFile } = options.config.feed
  if (tokenFile === '') {
    return loaded(new Feed(options, undefined))
  }
  let lastReload: ReloadResult = 'ok'
  const opened = await openPolledFiles({
    subject: SUBJECT,
    paths: [tokenFile],
    async load() {
      const token = await readBearerToken(tokenFile)
      return token.ok ? token : notLoaded(problemsAt(TOKEN_SETTING, token.problems), token.kind)
    },
    onReload(result) {
      lastReload = result
    },
    log: options.log,
  })
  const isFailing = () => lastReload === 'failed'
  return opened.ok ? loaded(new Feed(options, { token: opened.value, isFailing }), opened.warnings) : opened
}

interface SharedToken {
  readonly token: Reloadable<string>
  readonly isFailing: () => boolean
}

interface Asked {
  readonly res: ServerResponse
  readonly request: FeedRequest
  readonly token: string
}

/** A request that waits for a newer version than the follower has. */
interface Waiting extends Asked {
  readonly timer: NodeJS.Timeout
}

/** After a change, followers come back at once. So many milliseconds leave turns to other requests. */
const SPREAD_MS = 300
/** How often a connection is closed with its response, so that followers spread over the hubs again. */
const CLOSED_SHARE = 1 / 256
/** How long the end waits for the last responses. */
const STOP_MS = 1000
const UNAUTHORIZED: PublicError = { ...ERRORS.invalidToken, status: 401 }
const TOO_MANY: PublicError = {
  ...ERRORS.tooManyRequests,
  message: 'There are too many followers. Retry later.',
}
const RETRY_AFTER_SECONDS = 5

export class Feed implements AdminRoom {
  readonly routes: ReadonlyMap<string, AdminRoute>
  readonly #options: FeedOptions
  readonly #sharedToken: SharedToken | undefined
  readonly #proofs: Proofs
  readonly #history = new History()
  readonly #documents: Documents
  readonly #arrivals = new ResponseTurns()
  readonly #wakes = new ResponseTurns(SPREAD_MS)
  readonly #writer = new BodyWriter()
  readonly #followers = new Set<ServerResponse>()
  readonly #waiting = new Set<Waiting>()
  readonly #responses = Object.fromEntries(FEED_RESPONSES.map((kind) => [kind, 0])) as Record<
    FeedResponse,
    number
  >
  #sentBytes = 0
  #dropped = 0
  #state: StoreState | undefined
  #isStopping = false

  constructor(options: FeedOptions, sharedToken: SharedToken | undefined) {
    this.#options = options
    this.#sharedToken = sharedToken
    this.#proofs = new Proofs({ ...options, sharedToken: sharedToken?.token.current })
    this.#documents = new Documents(options.now)
    this.#state = options.store.current()
    options.store.subscribe((state) => this.#onState(state))
    // After a restart of a hub, all followers come back at once.
    const handle: AdminRoute['handle'] = (req, res, mayWait) => {
      this.#arrivals.add(() => {
        this.#serve(req, res, mayWait).catch((error: unknown) => this.#onError(res, error))
      })
    }
    this.routes = new Map([[PATH, { handle }]])
  }

  async #serve(req: IncomingMessage, res: ServerResponse, mayWait: () => void): Promise<void> {
    const token = presentedToken(req)
    const isProven = token !== undefined && (await this.#proofs.isProven(token))
    if (res.destroyed) {
      return // it would never leave the set of followers
    }
    if (!isProven) {
      return this.#refuse(res, 'unauthorized', UNAUTHORIZED, { 'WWW-Authenticate': 'Bearer realm="feed"' })
    }
    const read = readFeedRequest(req.url ?? '', req.headers)
    if (!read.ok) {
      return this.#refuse(res, 'invalid', { ...ERRORS.invalidArgument, message: read.error })
    }
    if (this.#followers.size >= this.#options.config.feed.maxFollowers) {
      return this.#refuse(res, 'refused', TOO_MANY, { 'Retry-After': RETRY_AFTER_SECONDS })
    }
    mayWait()
    this.#followers.add(res)
    // Not `once`, whose wrapper would take memory for each follower that waits.
    res.on('close', () => this.#onClose(res))
    if (this.#isKnown(read.value)) {
      this.#answerOrWait(res, read.value, token)
      return
    }
    // Another hub may have been faster. What it knows may be that the follower's token is revoked.
    await this.#options.store.refresh()
    await this.#answerIf(this.#proofs.isProven(token), { res, request: read.value, token })
  }

  /** Whether the changes since the follower's version are known. A follower without one needs none. */
  #isKnown({ versions }: FeedRequest): boolean {
    const isKnown = (version: string) => version === this.#state?.version || this.#history.has(version)
    return versions.length === 0 || versions.some(isKnown)
  }

  #answerOrWait(res: ServerResponse, request: FeedRequest, token: string): void {
    const state = this.#state
    if (res.destroyed) {
      return
    }
    if (state === undefined) {
      this.#refuse(res, 'unready', ERRORS.notReady, { 'Retry-After': 1 })
    } else if (!request.versions.includes(state.version)) {
      this.#send(res, request, state)
    } else if (request.waitSeconds === 0 || this.#isStopping) {
      this.#sendUnchanged(res, state)
    } else {
      this.#wait(res, request, token)
    }
  }

  #wait(res: ServerResponse, request: FeedRequest, token: string): void {
    const timer = setTimeout(() => this.#endWait(waiting), request.waitSeconds * 1000)
    const waiting: Waiting = { res, request, token, timer }
    this.#waiting.add(waiting)
    res.on('close', () => {
      clearTimeout(timer)
      this.#waiting.delete(waiting)
    })
  }

  /** If there is a newer version, the turn of the response comes, with another check of the token. */
  #endWait(waiting: Waiting): void {
    const state = this.#state
    if (state !== undefined && waiting.request.versions.includes(state.version)) {
      this.#waiting.delete(waiting)
      this.#sendUnchanged(waiting.res, state)
    }
  }

  #onState(state: StoreState): void {
    const former = this.#state
    this.#state = state
    if (former?.version === state.version) {
      return
    }
    this.#documents.clear()
    if (former !== undefined) {
      this.#history.add(former.version, changesBetween(former, state))
    }
    for (const waiting of this.#waiting) {
      this.#wakes.add(() => this.#wake(waiting))
    }
  }

  /** Answers a follower that waits, if it is still there and still proven. */
  #wake(waiting: Waiting): void {
    const { res, request, token, timer } = waiting
    if (!this.#waiting.delete(waiting)) {
      return
    }
    clearTimeout(timer)
    const proven = this.#proofs.isProven(token)
    const asked = { res, token, request: { ...request, waitSeconds: 0 } }
    if (proven === true) {
      this.#answerOrWait(res, asked.request, token)
      return
    }
    this.#answerIf(proven, asked).catch((error: unknown) => this.#onError(res, error))
  }

  async #answerIf(proven: boolean | Promise<boolean>, { res, request, token }: Asked): Promise<void> {
    if (await proven) {
      this.#answerOrWait(res, request, token)
    } else {
      this.#refuse(res, 'unauthorized', UNAUTHORIZED, { 'WWW-Authenticate': 'Bearer realm="feed"' })
    }
  }

  #send(res: ServerResponse, { versions, encoding }: FeedRequest, state: StoreState): void {
    const from = versions.find((version) => this.#history.has(version))
    const { version } = state
    const document =
      from === undefined
        ? this.#documents.whole(version, state)
        : this.#documents.changesOrWhole(version, from, this.#history, state)
    this.#responses[document.kind]++
    document
      .body(encoding)
      .then((body) => this.#sendBody(res, version, encoding, body))
      .catch((error: unknown) => this.#onError(res, error))
  }

  #sendBody(res: ServerResponse, version: string, encoding: Encoding, body: Buffer): void {
    if (res.destroyed) {
      return
    }
    const headers = this.#headers(version)
    if (encoding === 'gzip') {
      headers['Content-Encoding'] = 'gzip'
    }
    res.writeHead(200, { ...headers, 'Content-Type': 'application/json', 'Content-Length': body.length })
    if (res.req.method !== 'HEAD') {
      this.#sentBytes += body.length
    }
    this.#writer.write(res, body)
  }

  #sendUnchanged(res: ServerResponse, { version }: StoreState): void {
    this.#responses.unchanged++
    res.writeHead(304, this.#headers(version)).end()
  }

  #headers(version: string): OutgoingHttpHeaders {
    const headers: OutgoingHttpHeaders = {
      'Cache-Control': 'no-store',
      ETag: `"${version}"`,
      Vary: 'Accept-Encoding, Authorization',
    }
    // RFC 9111, section 5.1: a follower must know that this hub has lost its database.
    const ageSeconds = Math.floor(this.#options.store.ageSeconds())
    if (ageSeconds > 0) {
      headers['Age'] = ageSeconds
    }
    if (this.#isStopping || Math.random() < CLOSED_SHARE) {
      headers['Connection'] = 'close'
    }
    return headers
  }

  #refuse(
    res: ServerResponse,
    kind: FeedResponse,
    error: PublicError,
    headers: OutgoingHttpHeaders = {},
  ): void {
    this.#responses[kind]++
    const { status, code, message } = error
    const body = Buffer.from(JSON.stringify({ code, message }))
    const ofBody = { 'Content-Type': 'application/json', 'Content-Length': body.length }
    res.writeHead(status, { ...headers, 'Cache-Control': 'no-store', ...ofBody }).end(body)
  }

  #onClose(res: ServerResponse): void {
    this.#followers.delete(res)
    this.#dropped += Number(res.headersSent && !res.writableFinished)
  }

  #onError(res: ServerResponse, error: unknown): void {
    this.#options.log.error({ err: error }, 'the feed could not be sent')
    if (res.headersSent) {
      res.destroy()
    } else {
      const { status, code, message } = ERRORS.internalError
      const body = JSON.stringify({ code, message })
      res.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': body.length }).end(body)
    }
  }

  *problems(): Generator<StatusProblem> {
    if (this.#sharedToken?.isFailing()) {
      yield { severity: 'warning', text: 'The newest feed.tokenFile cannot be used: see the log' }
    }
  }

  *statusLines({ tenMinutes }: Windows): Generator<StatusLine> {
    const sent = tenMinutes.ofRoom('feed_responses_total', 'kind')
    const { size } = this.#followers
    const whole = `${sent.get('whole') ?? 0} whole states and ${sent.get('changes') ?? 0} changes sent`
    const text = `${size} ${size === 1 ? 'follower' : 'followers'}; ${whole}`
    yield { name: 'Feed', text }
  }

  metrics(): readonly RoomMetric[] {
    const responses = FEED_RESPONSES.map((kind) => ({ labels: { kind }, value: this.#responses[kind] }))
    const values = {
      feed_followers: [{ labels: {}, value: this.#followers.size }],
      feed_responses_total: responses,
      feed_sent_bytes_total: [{ labels: {}, value: this.#sentBytes }],
      feed_followers_dropped_total: [{ labels: {}, value: this.#dropped }],
    }
    const names = Object.keys(FEED_METRICS) as (keyof typeof FEED_METRICS)[]
    return names.map((name) => ({ name, ...FEED_METRICS[name], values: values[name], aggregator: 'sum' }))
  }

  start(): void {
    this.#sharedToken?.token.start()
  }

  /** Sends waiting followers to other hubs. Resolves once they have their responses, or after a second. */
  async stop(): Promise<void> {
    this.#isStopping = true
    this.#sharedToken?.token.stop()
    for (const waiting of this.#waiting) {
      this.#wakes.add(() => this.#wake(waiting))
    }
    const deadline = performance.now() + STOP_MS
    while (this.#followers.size > 0 && performance.now() < deadline) {
      await sleep(10)
    }
  }
}

function changesBetween(former: StoreState, fresh: StoreState): Changes {
  const { credentials, revocations } = fresh.touched ?? {}
  return {
    credentials: credentials
      ? touchedCredentials(credentials, fresh.credentials)
      : diffCredentials(former.credentials, fresh.credentials),
    revocations: revocations
      ? touchedRevocations(revocations, fresh.revocations)
      : diffRevocations(former.revocations, fresh.revocations),
  }
}
