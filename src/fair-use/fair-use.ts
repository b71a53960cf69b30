/**
 * Fair use: one account must not take the service from the others. Limits of requests, of requests in
 * flight and of bytes.
 * In: each request of a proven caller that would be forwarded or approved. Out: a refusal, or nothing.
 * Bytes are paced, never refused.
 *
 *   limits.ts    the file with the limits of each account
 *   rate.ts      the algorithm of rates, as functions
 *   account.ts   what one account uses
 *   pacing.ts    the transfers that wait until they may read on
 *   status.ts    the problem on the status page
 */
import { ERRORS } from '../base/errors.ts'
import { type Logger, loggable } from '../base/log.ts'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import type { RequestContext } from '../client/request.ts'
import { type Config, type Problem, problemsAt } from '../config/config.ts'
import { VARY_BY_TOKEN } from '../gate/forward-auth.ts'
import type { RefusalDecision, ServiceDecision } from '../gate/gate.ts'
import { openPolledFiles } from '../reload/polled-files.ts'
import type { Reloadable, ReloadResult } from '../reload/reloadable.ts'
import type { RequestWatcher, Room, RoomMetric } from '../room.ts'
import { Account, type Excess, LIMITS, type Limit } from './account.ts'
import { type AccountLimits, type FairUseLimits, loadLimits, POLICY_NAMES } from './limits.ts'
import { FAIR_USE_METRICS } from './metrics.ts'
import { Pacing } from './pacing.ts'

const SUBJECT = 'fair_use'
const SETTING = 'fairUse.file'
const SWEEP_MS = 1000

export interface FairUseOptions {
  readonly config: Pick<Config, 'fairUse' | 'trustedIssuers' | 'workers'>
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Undefined if it cannot be known, or not yet. */
  readonly hasCredentials: (accountId: string) => boolean | undefined
  readonly onReload: (subject: string, result: ReloadResult) => void
  /** Monotonic milliseconds. */
  readonly monotonicNow?: () => number
}

/** Never rejects. Polls the file only after `start` is called. */
export async function openFairUse(options: FairUseOptions): Promise<Loaded<FairUse, Problem>> {
  const { config, log, onReload } = options
  const { file, enforcement } = config.fairUse
  // A process without a primary may have `auto`: it serves alone.
  const processes = config.workers === 'auto' ? 1 : config.workers
  const opened = await openPolledFiles({
    subject: SUBJECT,
    paths: [file],
    async load() {
      const limits = await loadLimits(file, { processes, enforcement })
      return limits.ok ? limits : notLoaded(problemsAt(SETTING, limits.problems), limits.kind)
    },
    onReload: (result) => onReload(SUBJECT, result),
    log,
  })
  if (!opened.ok) {
    return opened
  }
  const room = new FairUse(opened.value, options)
  return loaded(room, [...opened.warnings, ...room.takeAccountWarnings()])
}

/** Watches a request over a limit that report mode lets pass. */
const WOULD_LIMIT: Readonly<Record<Limit, RequestWatcher>> = {
  requests: { logFields: { wouldLimit: 'requests' }, mustLog: true },
  in_flight: { logFields: { wouldLimit: 'in_flight' }, mustLog: true },
}

/** What decides whether and how a request counts. */
type Reviewed = Pick<ServiceDecision, 'act' | 'caller' | 'wouldRefuse'>

export class FairUse implements Room {
  readonly reloadSubject = SUBJECT
  readonly #options: FairUseOptions
  readonly #limits: Reloadable<FairUseLimits>
  readonly #pacing: Pacing
  readonly #accounts = new Map<string, Account>()
  readonly #limited: Record<Limit, number> = { requests: 0, in_flight: 0 }
  /** The accounts that a warning has named. */
  readonly #warned = new Set<string>()
  #sweepTimer: NodeJS.Timeout | undefined

  constructor(limits: Reloadable<FairUseLimits>, options: FairUseOptions) {
    this.#limits = limits
    this.#options = options
    this.#pacing = new Pacing(options.monotonicNow ?? (() => performance.now()))
    limits.subscribe(() => this.#onNewLimits())
  }

  review(decision: Reviewed, context: Pick<RequestContext, 'addWatcher'>): RefusalDecision | undefined {
    const { caller, wouldRefuse } = decision
    if (caller === undefined || wouldRefuse !== undefined) {
      return undefined
    }
    const { accountId } = caller.identity
    const limits = this.#limits.current().of(accountId)
    if (limits === undefined) {
      return undefined
    }
    const account = this.#accountOf(accountId, limits)
    const excess = account.take(this.#pacing.now())
    if (excess === undefined) {
      context.addWatcher(account)
      return undefined
    }
    this.#limited[excess.limit]++
    if (this.#options.config.fairUse.enforcement === 'report') {
      context.addWatcher(WOULD_LIMIT[excess.limit])
      return undefined
    }
    return this.#refuse(decision, limits, excess)
  }

  #refuse(decision: Reviewed, limits: AccountLimits, excess: Excess): RefusalDecision {
    const { refusedStatus: status } = this.#options.config.fairUse
    const waitSeconds = Math.max(1, Math.ceil(excess.waitMs / 1000))
    const headers = ['RateLimit-Policy', limits.policy, 'RateLimit', rateLimit(excess.limit, waitSeconds)]
    if (decision.act === 'approve') {
      headers.push(...VARY_BY_TOKEN)
    }
    return {
      act: 'refuse',
      reason: 'fair_use',
      caller: decision.caller,
      error: { ...ERRORS.tooManyRequests, status },
      headers,
      retryAfterSeconds: waitSeconds,
    }
  }

  #accountOf(accountId: string, limits: AccountLimits): Account {
    const known = this.#accounts.get(accountId)
    if (known !== undefined) {
      return known
    }
    const account = new Account(limits, this.#pacing)
    this.#accounts.set(accountId, account)
    this.#sweepTimer ??= setInterval(() => this.#forgetQuiet(), SWEEP_MS).unref()
    return account
  }

  #forgetQuiet(): void {
    const nowMs = this.#pacing.now()
    for (const [accountId, account] of this.#accounts) {
      if (account.isQuiet(nowMs)) {
        this.#accounts.delete(accountId)
      }
    }
    if (this.#accounts.size === 0) {
      clearInterval(this.#sweepTimer)
      this.#sweepTimer = undefined
    }
  }

  #onNewLimits(): void {
    const nowMs = this.#pacing.now()
    for (const [accountId, account] of this.#accounts) {
      account.changeLimits(this.#limits.current().of(accountId), nowMs)
    }
    this.#warned.clear()
    this.#warnOfUnknownAccounts()
  }

  /** A warning for each account of the file that has no credentials, once for each version of the file. */
  takeAccountWarnings(): readonly string[] {
    const { config, hasCredentials } = this.#options
    const mayExist = (accountId: string) =>
      hasCredentials(accountId) !== false || isOfTrustedIssuer(config, accountId)
    const unknown = this.#limits.current().accountIds.filter((accountId) => !mayExist(accountId))
    const fresh = unknown.filter((accountId) => !this.#warned.has(accountId))
    for (const accountId of fresh) {
      this.#warned.add(accountId)
    }
    const { file } = config.fairUse
    return fresh.map(
      (accountId) => `${file} limits the account ${loggable(accountId)}, which has no credentials`,
    )
  }

  #warnOfUnknownAccounts(): void {
    for (const warning of this.takeAccountWarnings()) {
      this.#options.log.warn({ subject: SUBJECT }, warning)
    }
  }

  onAuthDataChange(subject: 'keys' | 'credentials' | 'revocations'): void {
    if (subject === 'credentials') {
      this.#warnOfUnknownAccounts()
    }
  }

  metrics(): readonly RoomMetric[] {
    const { pacedSeconds } = this.#pacing
    const limited = LIMITS.map((limit) => ({ labels: { limit }, value: this.#limited[limit] }))
    const paced = (['in', 'out'] as const).map((direction) => ({
      labels: { direction },
      value: pacedSeconds[direction],
    }))
    return [
      {
        name: 'fair_use_limited_total',
        ...FAIR_USE_METRICS.fair_use_limited_total,
        values: limited,
        aggregator: 'sum',
      },
      {
        name: 'fair_use_paced_seconds_total',
        ...FAIR_USE_METRICS.fair_use_paced_seconds_total,
        values: paced,
        aggregator: 'sum',
      },
    ]
  }

  start(): void {
    this.#warnOfUnknownAccounts()
    this.#limits.start()
  }

  reload(): Promise<unknown> {
    return this.#limits.reload()
  }

  stop(): void {
    this.#limits.stop()
    this.#pacing.stop()
    clearInterval(this.#sweepTimer)
  }
}

function isOfTrustedIssuer({ trustedIssuers }: FairUseOptions['config'], accountId: string): boolean {
  return trustedIssuers.some(({ accounts, accountPrefix }) => {
    const isNamed = Object.values(accounts ?? {}).includes(accountId)
    const hasPrefix = accountPrefix !== undefined && accountId.startsWith(accountPrefix)
    return isNamed || hasPrefix
  })
}

/** draft-ietf-httpapi-ratelimit-headers-11, section 4. */
function rateLimit(limit: Limit, waitSeconds: number): string {
  const window = limit === 'requests' ? `;t=${waitSeconds}` : ''
  return `${POLICY_NAMES[limit]};r=0${window}`
}
