/**
 * Follows the feed of issuing sidecars (hubs): which credentials may be used, and what is revoked.
 * A hub responds once it has a newer version (long polling). The follower then sends the next request.
 *
 *   response of the hub           active state      next request
 *   changes                       with the changes  at once; within 0.1 s if the hub has not waited
 *   no newer version              as before         at once; after a pause if the hub has not waited
 *   a whole state                 the new one       at once; after a pause if there were several in a minute
 *   one without most credentials  as before         after a pause; accepted if still so after a minute
 *   any that is older             as before         after a pause, to another hub if there is one
 *   none, or one that is no feed  as before         after a pause; the hub is asked not to wait
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../../base/log.ts'
import { type Loaded, loaded, notLoaded } from '../../base/result.ts'
import { type Found, type PollResult, Reloadable, type ReloadResult } from '../../reload/reloadable.ts'
import type { CredentialStatus } from '../../token/issuers.ts'
import type { CredentialLookups } from '../credential-checks.ts'
import { RevocationList } from '../revocation-list.ts'
import { FeedClient, type FeedRequest, type FeedResponse, type FeedSource } from './feed-client.ts'
import type { FeedUpdate } from './format.ts'
import { type Outcome, Pauses } from './pauses.ts'
import { FollowedState } from './state.ts'

export interface FollowerOptions extends FeedSource {
  /** Undefined: the last state stays in use, however old it is. */
  readonly maxStaleSeconds?: number | undefined
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly now: () => number
  readonly onReload: (result: ReloadResult) => void
  /** From 0 to 1. */
  readonly random?: () => number
  /** Ends early, without rejecting, when the signal aborts. */
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<unknown>
}

export type FeedState = 'current' | 'feed failing, last state active' | 'feed failing, state too old'

const WAIT_SECONDS = 30
/** A hub that responds sooner, without a newer version, has not waited as requested. */
const MIN_WAIT_MS = 1000
/** A whole state with a smaller part of the active credentials is probably a mistake. */
const MIN_KEPT_RATIO = 0.1
const LOSS_CONFIRMED_MS = 60_000
const LOST = 'lost nine tenths of the credentials: refused, unless it stays so for a minute'
const OLDER = 'is older than the active state: the hub that sends it does not reach its database'
/**
 * A hub looks at its database a moment before it responds, and so seems to have lost it a moment earlier.
 * What its files say meanwhile, such as a revocation, must arrive.
 */
const AGE_MARGIN_SECONDS = 5
const AGE_CHECK_MS = 1000

/** The result of all updates until now. A new object for each version; `state` changes in place. */
interface Followed {
  readonly state: FollowedState
  /** What differs from the version before. */
  readonly changed: 'credentials' | 'revocations'
  readonly changesOnlyTokens: boolean
}
type FoundState = Found<Followed | undefined>

const NO_REVOCATIONS = new RevocationList()

const pauseFor = (ms: number, signal: AbortSignal) => sleep(ms, undefined, { signal }).catch(() => {})

/** No method and no promise of this class rejects. */
export class FeedFollower {
  readonly whenLoaded: Promise<Loaded<boolean>>
  readonly lookups: CredentialLookups
  /** What log lines show of its URL. */
  readonly from: string
  readonly #options: FollowerOptions
  readonly #client: FeedClient
  readonly #pauses: Pauses
  readonly #followed: Reloadable<Followed | undefined>
  readonly #subscribers: ((subject: 'credentials' | 'revocations') => void)[] = []
  /** Ends the pause before a request, and its wait. */
  #interrupt: AbortController | undefined
  #wasInterrupted = false
  /** The number of updates until now. For `Reloadable`, it is the version of the state. */
  #updates = 0
  /** The next request asks for the whole state. */
  #asksWhole = false
  #lostSinceMs: number | undefined
  /** How many requests in a row have brought nothing that can be used. */
  #failures = 0
  /** The last problem that was reported: why no newer state could be fetched, or was refused. */
  #problem: string | undefined
  #reported: Followed | undefined
  /** For how long the hub that responded last has not reached its database. */
  #hubAgeMs = 0
  #goodAt = { ms: Number.NEGATIVE_INFINITY, monotonicMs: Number.NEGATIVE_INFINITY }
  #ageTimer: NodeJS.Timeout | undefined
  #wasTooOld = false

  constructor(options: FollowerOptions) {
    const { url, log, random = Math.random } = options
    const { origin, pathname } = new URL(url)
    this.#options = options
    this.from = `${origin}${pathname}` // the query may be a secret
    this.#client = new FeedClient(options, random)
    this.#pauses = new Pauses(random)
    this.#followed = new Reloadable<Followed | undefined>({
      poll: () => this.#poll(),
      initial: undefined,
      pollMs: 1,
      onPolled: (polled) => this.#report(polled),
      onError: (err) => log.error({ from: this.from, err }, 'the feed could not be applied'),
    })
    this.whenLoaded = this.#followed.whenLoaded
    this.lookups = {
      hasAccount: (accountId) => this.state()?.hasAccount(accountId) === true,
      hasCredential: (accountId, accessKey) => this.state()?.find({ accountId, accessKey }) !== undefined,
      credentialStatus: this.#credentialStatus,
    }
  }

  /** Undefined until the first one has arrived. */
  readonly state = (): FollowedState | undefined => this.#followed.current()?.state

  readonly revocations = (): RevocationList => this.state()?.revocations ?? NO_REVOCATIONS

  readonly countActive = (): number => this.state()?.countActive(this.#options.now()) ?? 0

  /** Since the state was last known to be that of the hubs' store. Undefined until there is a state. */
  readonly ageSeconds = (): number | undefined => {
    if (this.state() === undefined) {
      return undefined
    }
    // Neither a clock that is set back nor a machine that sleeps may keep the state young.
    const byClockMs = this.#options.now() - this.#goodAt.ms
    const monotonicMs = performance.now() - this.#goodAt.monotonicMs
    return Math.max(byClockMs, monotonicMs, 0) / 1000
  }

  /** Whether the state is so old that no token may be accepted. */
  readonly isTooOld = (): boolean => {
    const { maxStaleSeconds = Number.POSITIVE_INFINITY } = this.#options
    return (this.ageSeconds() ?? 0) > maxStaleSeconds
  }

  readonly condition = () => {
    const isLoaded = this.state() !== undefined
    return { name: 'credentials', ok: isLoaded, state: isLoaded ? this.#feedState() : undefined } as const
  }

  /**
   * `onChange`: called for each new version except the first, and when the state has become too old.
   * A whole state may have changed both.
   */
  subscribe(onChange: (subject: 'credentials' | 'revocations') => void): void {
    this.#subscribers.push(onChange)
    this.#followed.subscribe((fresh, former) => {
      if (fresh === undefined || former === undefined || fresh === former) {
        return
      }
      onChange(fresh.changed)
      if (fresh.state !== former.state) {
        onChange('revocations')
      }
    })
  }

  start(): void {
    this.#followed.start()
    if (this.#options.maxStaleSeconds !== undefined) {
      this.#ageTimer = setInterval(() => this.#checkAge(), AGE_CHECK_MS).unref()
    }
  }

  /** Asks for the whole state, and accepts it however small it is. */
  async reload(): Promise<void> {
    if (this.state() === undefined) {
      return
    }
    this.#asksWhole = true
    const reloading = this.#followed.reload()
    this.reconnect()
    await reloading
  }

  /** Must be called after a change of the CAs: asks on a new connection. */
  reconnect(): void {
    this.#pauses.reset()
    this.#client.disconnect()
    this.#interrupt?.abort()
  }

  /** Ends the request in progress. */
  async stop(): Promise<void> {
    clearInterval(this.#ageTimer)
    this.#followed.stop()
    this.reconnect()
    await this.#followed.whenIdle()
    this.#client.disconnect()
  }

  readonly #credentialStatus = (accountId: string, accessKey: string): CredentialStatus => {
    const credential = this.state()?.find({ accountId, accessKey })
    if (credential === undefined || this.#options.now() >= credential.expiresAtMs) {
      return { active: false, exists: credential !== undefined }
    }
    return { active: true, endsAtMs: credential.expiresAtMs, scope: credential.scope }
  }

  async #poll(): Promise<Loaded<FoundState>> {
    const { pause = pauseFor } = this.#options
    const interrupt = new AbortController()
    this.#interrupt = interrupt
    await pause(this.#pauses.next(), interrupt.signal)
    const since = this.#asksWhole ? undefined : this.state()?.version
    const waitSeconds = this.#client.canReuseConnection && this.#failures === 0 ? WAIT_SECONDS : 0
    const sentAtMonotonicMs = performance.now()
    const request = { since, waitSeconds }
    const result = await this.#client.fetch(request, interrupt.signal)
    this.#interrupt = undefined
    this.#wasInterrupted = !result.ok && interrupt.signal.aborted
    if (this.#wasInterrupted) {
      return this.state() === undefined ? notLoaded(['was not waited for']) : this.#unchanged()
    }
    if (!result.ok) {
      const { problem, isUnusable } = result.error
      return this.#failed(problem, isUnusable)
    }
    const isQuick = performance.now() - sentAtMonotonicMs < MIN_WAIT_MS
    return this.#onResponse(result.value, request, isQuick)
  }

  /** `isQuick`: the hub has not waited. */
  #onResponse(response: FeedResponse, request: FeedRequest, isQuick: boolean): Loaded<FoundState> {
    const { update, hubAgeSeconds } = response
    const ageSeconds = this.ageSeconds() ?? Number.POSITIVE_INFINITY
    if (update !== undefined && hubAgeSeconds > ageSeconds + AGE_MARGIN_SECONDS) {
      return this.#failed(OLDER, false)
    }
    this.#hubAgeMs = hubAgeSeconds * 1000
    if (update === undefined) {
      const mayWait = request.waitSeconds > 0
      if (mayWait && hubAgeSeconds > 0) {
        this.#client.disconnect() // a new connection may lead to a hub that reaches its database
      }
      this.#note(isQuick && mayWait ? 'hasty' : 'steady')
      return this.#unchanged()
    }
    return this.#acceptUpdate(update, request.since, isQuick)
  }

  #note(outcome: Outcome): void {
    this.#pauses.note(outcome, performance.now())
  }

  /** `isUnusable`: the same changes would fail again, so the next request is for the whole state. */
  #failed(problem: string, isUnusable: boolean): Loaded<FoundState> {
    this.#client.disconnect()
    this.#note('failed')
    this.#asksWhole ||= isUnusable
    return notLoaded([problem])
  }

  #unchanged(): Loaded<FoundState> {
    return loaded({ version: String(this.#updates), load: async (active) => loaded(active) })
  }

  #acceptUpdate(update: FeedUpdate, since: string | undefined, isQuick: boolean): Loaded<FoundState> {
    if (update.from !== null && update.from !== since) {
      return this.#failed('has changes of another version than it was asked for', true)
    }
    this.#updates++
    const version = String(this.#updates)
    if (update.from === null) {
      this.#note(isQuick ? 'whole' : 'steady')
      return loaded({ version, load: (active, isForced) => this.#loadWhole(update, active, isForced) })
    }
    this.#note(isQuick ? 'changes' : 'steady')
    return loaded({ version, load: async (active) => loaded(active && applyChanges(update, active.state)) })
  }

  async #loadWhole(update: FeedUpdate, active: Followed | undefined, isForced: boolean) {
    const state = await FollowedState.of(update)
    if (active !== undefined && !isForced && this.#isUnconfirmedLoss(active.state, state)) {
      this.#note('failed')
      return notLoaded([LOST])
    }
    this.#asksWhole = false
    return loaded<Followed>({ state, changed: 'credentials', changesOnlyTokens: false })
  }

  /** Whether most credentials are lost, for less than `LOSS_CONFIRMED_MS`. */
  #isUnconfirmedLoss(active: FollowedState, fresh: FollowedState): boolean {
    const now = this.#options.now()
    if (fresh.countActive(now) >= MIN_KEPT_RATIO * active.countActive(now)) {
      return false
    }
    this.#lostSinceMs ??= now
    return Math.abs(now - this.#lostSinceMs) < LOSS_CONFIRMED_MS
  }

  #report(polled: PollResult<Followed | undefined>): void {
    if (this.#wasInterrupted) {
      this.#wasInterrupted = false
      return
    }
    if (!polled.ok) {
      this.#reportProblem(polled.problems.join(', '))
      return
    }
    const { log, onReload } = this.#options
    this.#noteAge()
    this.#lostSinceMs = undefined
    const wasFailing = this.#problem !== undefined
    this.#failures = 0
    this.#problem = undefined
    const followed = this.#followed.current()
    // Each logout revokes one token. A log line for each logout in each sidecar would be noise.
    const isReported = followed !== this.#reported && followed?.changesOnlyTokens === false
    this.#reported = followed
    if (isReported || wasFailing) {
      onReload('ok')
    }
    if (isReported) {
      const { size, revocations } = followed.state
      log.info({ credentials: size, revocations: revocations.size }, 'new credentials active')
    }
    if (wasFailing) {
      log.info({ from: this.from }, 'the feed can be followed again')
    }
  }

  /** Another hub may have said a shorter time ago that the state is the newest. */
  #noteAge(): void {
    const ageMs = (this.ageSeconds() ?? Number.POSITIVE_INFINITY) * 1000
    if (this.#hubAgeMs < ageMs) {
      const ms = this.#options.now() - this.#hubAgeMs
      this.#goodAt = { ms, monotonicMs: performance.now() - this.#hubAgeMs }
    }
  }

  /** A hub that ends is no problem: another one answers the next request. */
  #reportProblem(problem: string): void {
    this.#failures++
    const isFirst = this.#failures === 1 && this.state() !== undefined
    if (isFirst || problem === this.#problem) {
      return
    }
    this.#problem = problem
    const { log, onReload } = this.#options
    const fields = { from: this.from, problem: `the feed ${problem}` }
    if (this.state() === undefined) {
      log.warn(fields, 'waiting for the feed')
      return
    }
    onReload('failed')
    log.error(fields, 'the feed cannot be followed, the last state stays active')
  }

  #feedState(): FeedState {
    if (this.isTooOld()) {
      return 'feed failing, state too old'
    }
    return this.#problem === undefined ? 'current' : 'feed failing, last state active'
  }

  /** Cached tokens, waiting requests and tunnels are then checked again. */
  #checkAge(): void {
    const isTooOld = this.isTooOld()
    if (isTooOld && !this.#wasTooOld) {
      const { log, maxStaleSeconds } = this.#options
      log.error(
        { from: this.from, maxStaleSeconds },
        'the state of the feed is too old: no token is accepted',
      )
      for (const onChange of this.#subscribers) {
        onChange('credentials')
      }
    }
    this.#wasTooOld = isTooOld
  }
}

function applyChanges(update: FeedUpdate, state: FollowedState): Followed {
  const { credentials, revocations } = update
  const hasCredentials = credentials.set.length + credentials.removed.length > 0
  const areTokens = [...revocations.set, ...revocations.removed].every(({ jti }) => jti !== undefined)
  state.apply(update)
  return {
    state,
    changed: hasCredentials ? 'credentials' : 'revocations',
    changesOnlyTokens: !hasCredentials && areTokens,
  }
}
