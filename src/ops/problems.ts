/** The problems at the head of the status page, in words, and their thresholds. */
import type { AccessFailure, LoginFailure, UpstreamOutcome } from '../base/errors.ts'
import { type Growth, sum, type Windows } from './samples.ts'
import type { Status } from './status.ts'

const CRITICAL_RATIO = 0.05
/** Fewer may be one person's typing mistakes. */
const MANY_LOGINS = 5
const MANY_TOKENS = 20
/** Accepted tokens that a recent interval lacks. Fewer may be the pause of one client. */
const MIN_MISSING = 5
const CERTIFICATE_WARNING_DAYS = 14
const CERTIFICATE_CRITICAL_DAYS = 2
const KEY_WARNING_DAYS = 90
const DAY_SECONDS = 86_400
const KEYS_MINUTES = 5
const FEED_MINUTES = 5

/**
 * Reasons to refuse tokens that were good once, or that cannot be checked.
 * Clients without a good token can cause the others.
 */
const ONCE_GOOD: readonly AccessFailure[] = ['expired', 'revoked', 'claims', 'scope', 'host', 'unavailable']
/** Reasons to refuse tokens that other keys signed: made-up tokens, and good ones after a change of keys. */
const OTHER_KEYS: readonly AccessFailure[] = ['unknown_key', 'signature', 'algorithm']
const QUEUE_FULL: UpstreamOutcome = 'connection_limit_reached'

export type StatusProblem = Readonly<{ severity: 'critical' | 'warning'; text: string }>
type Problems = Generator<StatusProblem>

const critical = (text: string): StatusProblem => ({ severity: 'critical', text })
const warning = (text: string): StatusProblem => ({ severity: 'warning', text })
const rated = (ratio: number, text: string) => (ratio >= CRITICAL_RATIO ? critical(text) : warning(text))
const inSeconds = ({ seconds }: Growth) => `in ${Math.round(seconds)} s`
const percentOf = (ratio: number) => (ratio < 0.001 ? '< 0.1' : String(Number((ratio * 100).toPrecision(2))))

export function statusProblems(windows: Windows, status: Status): StatusProblem[] {
  const { inFlight } = status.requests
  const isDraining = status.checks.some(({ state }) => state === 'draining')
  const isDatabaseDown = status.checks.some(({ state }) => state === 'database down, last snapshot active')
  return [
    ...(isDraining ? [warning(`Draining: ${inFlight} request${inFlight === 1 ? '' : 's'} in flight`)] : []),
    ...upstreamProblems(windows, status),
    ...loginProblems(windows, isDatabaseDown),
    ...tokenProblems(windows),
    ...requestProblems(windows, status),
    ...trustProblems(windows, status, isDatabaseDown),
  ]
}

/** Critical problems first. */
export const sortProblems = (problems: readonly StatusProblem[]): StatusProblem[] =>
  problems.toSorted((a, b) => Number(b.severity === 'critical') - Number(a.severity === 'critical'))

function* upstreamProblems({ recently }: Windows, { upstreams }: Status): Problems {
  const now = inSeconds(recently)
  for (const { prefix: upstream, state, failedNow, lastFault, serverErrorRatio } of upstreams) {
    const refused = recently.total('upstream_requests_total', { upstream, outcome: QUEUE_FULL })
    const { outcome = '', secondsAgo } = lastFault ?? {}
    if (refused > 0) {
      yield critical(
        `Upstream "${upstream}" is overloaded: ${refused} requests refused ${now}, its queue is full or too slow`,
      )
    } else if (state === 'failing') {
      yield critical(`Upstream "${upstream}" fails: ${outcome}, last ${secondsAgo} s ago`)
    } else if (failedNow > 0) {
      yield warning(`Upstream "${upstream}" fails at times: ${outcome}`)
    }
    if (serverErrorRatio) {
      yield rated(
        serverErrorRatio,
        `Upstream "${upstream}" responds with 5xx to ${percentOf(serverErrorRatio)} % of requests ${now}`,
      )
    }
  }
}

function* loginProblems({ recently }: Windows, isDatabaseDown: boolean): Problems {
  const now = inSeconds(recently)
  const failedLogins = (reason: LoginFailure) => recently.total('token_issue_failures_total', { reason })
  const ownFailures = failedLogins('unavailable') + failedLogins('internal')
  if (isDatabaseDown) {
    yield critical('The credentials database is down: no logins; token checks use its last state')
  } else if (ownFailures > 0) {
    yield critical(`Logins fail: ${ownFailures} ${now}, by a fault of this side`)
  }
  const rejected = failedLogins('rejected')
  if (recently.total('tokens_issued_total') === 0 && rejected >= MANY_LOGINS) {
    yield warning(`Every login fails: ${rejected} rejected and none accepted ${now}`)
  }
}

/**
 * Refusals of tokens that were good, and of tokens whose keys are gone. A flood of made-up tokens is neither.
 */
function* tokenProblems({ tenMinutes, recently }: Windows): Problems {
  const now = inSeconds(recently)
  const accepted = recently.total('token_checks_total', { reason: 'ok' })
  const onceGood = recently.by('token_checks_total', 'reason', { reason: ONCE_GOOD })
  const ofOtherKeys = recently.by('token_checks_total', 'reason', { reason: OTHER_KEYS })
  const refusedRatio = sum(onceGood) / Math.max(1, accepted + sum(onceGood))
  if (sum(onceGood) >= MANY_TOKENS && refusedRatio >= CRITICAL_RATIO) {
    const share = accepted === 0 ? 'Every token is' : `${percentOf(refusedRatio)} % of the tokens are`
    yield critical(`${share} refused: ${countsIn(onceGood)} ${now}`)
    return
  }
  // Anyone can send tokens of unknown keys.
  // Only a change of keys also takes their place from the accepted ones.
  const before = tenMinutes.total('token_checks_total', { reason: 'ok' }) - accepted
  const expected = (before / Math.max(1, tenMinutes.seconds - recently.seconds)) * recently.seconds
  const missing = Math.max(0, expected - accepted)
  const isReplaced = missing >= MIN_MISSING && missing >= expected / 2 && sum(ofOtherKeys) >= missing / 2
  if (sum(ofOtherKeys) >= MANY_TOKENS && isReplaced) {
    yield critical(`Tokens that were accepted before are refused: ${countsIn(ofOtherKeys)} ${now}`)
  }
}

const countsIn = (growth: ReadonlyMap<string, number>) =>
  [...growth].flatMap(([reason, count]) => (count > 0 ? `${count} ${reason}` : [])).join(', ')

function* requestProblems({ tenMinutes, recently, values }: Windows, { checks, requests }: Status): Problems {
  const now = inSeconds(recently)
  const droppedConnections = recently.total('client_connections_dropped_total')
  if (droppedConnections > 0) {
    yield critical(`${droppedConnections} connections closed ${now}: limits.connections are open`)
  }
  if (values.total('open_files_used_up') > 0) {
    yield critical('No open file is left (ulimit -n): new clients are refused')
  }
  const minutes = Math.ceil(tenMinutes.seconds / 60)
  const droppedLines = tenMinutes.total('log_lines_dropped_total')
  if (droppedLines > 0) {
    yield warning(`${droppedLines} log lines lost in ${minutes} min`)
  }
  const uncaught = tenMinutes.total('uncaught_exceptions_total')
  if (uncaught > 0) {
    yield critical(`${uncaught} uncaught exceptions in ${minutes} min: the log has them`)
  }
  const unready = checks.filter(({ ok, state }) => !ok && state !== 'draining').map(({ name }) => name)
  if (unready.length > 0) {
    yield critical(`Not ready: ${unready.join(', ')}`)
  }
  const { failingRatio } = requests
  if (failingRatio) {
    yield rated(failingRatio, `${percentOf(failingRatio)} % of forwarded requests fail (5xx) ${now}`)
  }
}

function* trustProblems(windows: Windows, status: Status, isDatabaseDown: boolean): Problems {
  yield* certificateProblems(windows)
  yield* reloadProblems(windows, isDatabaseDown)
  yield* keySetProblems(windows)
  yield* feedProblems(status)
  for (const [kid, age] of windows.values.by('signing_key_age_seconds', 'kid')) {
    if (age > KEY_WARNING_DAYS * DAY_SECONDS) {
      yield warning(`Signing key "${kid}" is older than ${KEY_WARNING_DAYS} d`)
    }
  }
  if (windows.values.total('enforcing') === 0) {
    yield warning('Report mode: refused tokens are forwarded')
  }
}

function* certificateProblems({ at, values }: Windows): Problems {
  const certificateEnds = values.by('certificate_not_after_timestamp_seconds', 'certificate')
  for (const [certificate, endsAtSeconds] of certificateEnds) {
    const secondsLeft = endsAtSeconds - at / 1000
    const days = Math.floor(secondsLeft / DAY_SECONDS)
    if (secondsLeft < 0) {
      yield critical(`Certificate "${certificate}" has expired`)
    } else if (days < CERTIFICATE_CRITICAL_DAYS) {
      yield critical(`Certificate "${certificate}" expires in ${Math.floor(secondsLeft / 3600)} h`)
    } else if (days < CERTIFICATE_WARNING_DAYS) {
      yield warning(`Certificate "${certificate}" expires in ${days} d`)
    }
  }
}

function* reloadProblems({ values }: Windows, isDatabaseDown: boolean): Problems {
  for (const [subject, failing] of values.by('reload_failing', 'subject')) {
    const isReported = isDatabaseDown && subject === 'credentials'
    if (failing > 0 && !isReported) {
      yield warning(`The newest ${subject} cannot be used, or not in full: see the log`)
    }
  }
  for (const [subject, suspect] of values.by('reload_suspect', 'subject')) {
    if (suspect > 0) {
      yield critical(`The newest ${subject} are probably a mistake: see the log, "new version is suspect"`)
    }
  }
}

function* keySetProblems({ values }: Windows): Problems {
  const ages = values.by('jwks_age_seconds', 'issuer')
  for (const [issuer, failed] of values.by('jwks_fetches_total', 'issuer', { result: 'failed' })) {
    const age = ages.get(issuer)
    if (age === undefined && failed > 0) {
      yield warning(`No keys from ${issuer} yet: its tokens are refused`)
    } else if (age !== undefined && age > KEYS_MINUTES * 60) {
      yield warning(`No good keys from ${issuer} for more than ${KEYS_MINUTES} min; the last ones are active`)
    }
  }
}

function* feedProblems({ feed }: Status): Problems {
  const { ageSeconds = null, maxStaleSeconds = null } = feed ?? {}
  if (ageSeconds === null) {
    return
  }
  if (maxStaleSeconds !== null && ageSeconds > maxStaleSeconds) {
    yield critical(
      'The state of the feed is too old (credentials.feed.maxStaleSeconds): every token gets 503',
    )
  } else if (ageSeconds > FEED_MINUTES * 60) {
    const minutes = Math.floor(ageSeconds / 60)
    yield warning(`The feed has brought nothing for ${minutes} min: token checks use its last state`)
  }
}
