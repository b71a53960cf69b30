/**
 * When each alert is to fire, and when not.
 *
 * Series are written as promtool takes them, one sample a minute where nothing else is said: `0+5x60` counts from 0
 * by 5 for 60 minutes, `7x10` stays at 7, `_x10` is not there.
 *
 * @module
 */

/** Labels by name. */
type Labels = Readonly<Record<string, string>>

/** One situation. */
export interface AlertCase {
  readonly alert: string
  /** The situation, in words. */
  readonly when: string
  /** Series with their samples. */
  readonly series: readonly (readonly [series: string, samples: string])[]
  /** When to look, in minutes. */
  readonly at: number
  /** Minutes between two samples, and between two looks; default 1. */
  readonly every?: number
  /** The labels of the alerts that fire, but for `severity`; none: it stays silent. */
  readonly fires: readonly Labels[]
}

const JOB = { namespace: 'shop', job: 'api' }
const POD = { ...JOB, pod: 'api-1', instance: '10.0.0.1:8081' }
const OTHER = { ...JOB, pod: 'api-2', instance: '10.0.0.2:8081' }

/** The name of a series of the first pod, or of another one. */
function of(name: string, labels: Labels = {}, pod: Labels = POD): string {
  const all = Object.entries({ ...pod, ...labels }).map(([label, value]) => `${label}="${value}"`)
  return `${name}{${all.join(',')}}`
}

const requests = (status: string, route = 'proxy') =>
  of('auth_sidecar_requests_total', { route, method: 'GET', status })
const checks = (reason: string) =>
  of('auth_sidecar_token_checks_total', { result: reason === 'ok' ? 'accepted' : 'rejected', reason })
const outcome = (name: string, upstream = '/') =>
  of('auth_sidecar_upstream_requests_total', { upstream, outcome: name })
const issued = of('auth_sidecar_tokens_issued_total')
const notIssued = (reason: string) => of('auth_sidecar_token_issue_failures_total', { reason })
const hits = of('auth_sidecar_token_cache_hits_total')
const misses = of('auth_sidecar_token_cache_misses_total')
const certificate = (pod = POD) =>
  of('auth_sidecar_certificate_not_after_timestamp_seconds', { certificate: 'listener' }, pod)
const build = of('auth_sidecar_build_info', { version: '1.0.0', node: 'v26.1.0' })
const foreign = { namespace: 'shop', job: 'other-node-program', instance: '10.0.0.9:9000' }
const DAY = 86_400

/** Every situation. */
export const ALERT_CASES: readonly AlertCase[] = [
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'two of a hundred requests fail for an hour',
    series: [
      [requests('200'), '0+98x90'],
      [requests('503'), '0+2x90'],
    ],
    at: 90,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'everything begins to fail with a status that had not been seen before',
    series: [
      [requests('200'), '0+100x60 6000x20'],
      [requests('500'), '_x60 100+100x20'],
    ],
    at: 70,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'one of a hundred requests fails for six hours',
    series: [
      [requests('200'), '0+495x80'],
      [requests('500'), '0+5x80'],
    ],
    every: 5,
    at: 400,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'four of a thousand requests fail',
    series: [
      [requests('200'), '0+4980x80'],
      [requests('503'), '0+20x80'],
    ],
    every: 5,
    at: 400,
    fires: [],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'it is over',
    series: [
      [requests('200'), '0+100x120'],
      [requests('503'), '0+20x60 1200x60'],
    ],
    at: 110,
    fires: [],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'a few of a few requests fail',
    series: [
      [requests('200'), '0x10 1x10 2x10 3x10 4x10 5x40'],
      [requests('503'), '0x5 1x10 2x10 3x10 4x10 5x40'],
    ],
    at: 60,
    fires: [],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'clients are refused, leave, or guess at secrets until they are throttled',
    series: [
      [requests('200'), '0+10x120'],
      [requests('400'), '0+90x120'],
      [requests('499'), '0+90x120'],
      [requests('503', 'token_issue'), '0+90x120'],
    ],
    at: 120,
    fires: [],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'nothing comes',
    series: [
      [requests('200'), '100x80'],
      [requests('503'), '100x80'],
    ],
    every: 5,
    at: 400,
    fires: [],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsFast',
    when: 'the sidecar is started anew and counts from nothing',
    series: [
      [requests('200'), '90000+100x60 0+100x60'],
      [requests('503'), '5000x60 0x60'],
    ],
    at: 100,
    fires: [],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsSlowly',
    when: 'four of a thousand requests fail for a day',
    series: [
      [requests('200'), '0+4980x320'],
      [requests('503'), '0+20x320'],
    ],
    every: 5,
    at: 1580,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsSlowly',
    when: 'two of a thousand requests fail for three days',
    series: [
      [requests('200'), '0+5988x450'],
      [requests('502'), '0+12x450'],
    ],
    every: 10,
    at: 4440,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsSlowly',
    when: 'the objective is met',
    series: [
      [requests('200'), '0+5997x450'],
      [requests('502'), '0+3x450'],
    ],
    every: 10,
    at: 4440,
    fires: [],
  },
  {
    alert: 'AuthSidecarErrorBudgetBurnsSlowly',
    when: 'a request fails every two hours, and hardly more are sent',
    series: [
      [requests('200'), '0+12x320'],
      [requests('503'), '0x20 1x24 2x24 3x24 4x24 5x24 6x24 7x24 8x24 9x24 10x84'],
    ],
    every: 5,
    at: 1580,
    fires: [],
  },
  {
    alert: 'AuthSidecarRejectionSpike',
    when: 'half of the tokens are refused that were accepted yesterday',
    series: [
      [checks('ok'), '0+100x300'],
      [checks('expired'), '0x270 0+100x30'],
      [checks('missing'), '0x300'],
    ],
    every: 5,
    at: 1490,
    fires: [{ ...JOB, reason: 'expired' }],
  },
  {
    alert: 'AuthSidecarRejectionSpike',
    when: 'a new sidecar refuses everything',
    series: [
      [checks('ok'), '0x300'],
      [checks('claims'), '0+20x300'],
    ],
    at: 290,
    fires: [{ ...JOB, reason: 'claims' }],
  },
  {
    alert: 'AuthSidecarRejectionSpike',
    when: 'a third was refused, and now it is all but everything',
    series: [
      [checks('ok'), '0+200x270 54000+5x30'],
      [checks('missing'), '0+100x270 27000+300x30'],
    ],
    every: 5,
    at: 1490,
    fires: [{ ...JOB, reason: 'missing' }],
  },
  {
    alert: 'AuthSidecarRejectionSpike',
    when: 'a third is refused day and night',
    series: [
      [checks('ok'), '0+200x300'],
      [checks('missing'), '0+100x300'],
    ],
    every: 5,
    at: 1490,
    fires: [],
  },
  {
    alert: 'AuthSidecarRejectionSpike',
    when: 'a load balancer that has no token is all that ever comes',
    series: [
      [checks('ok'), '0x300'],
      [checks('missing'), '0+100x300'],
    ],
    every: 5,
    at: 1490,
    fires: [],
  },
  {
    alert: 'AuthSidecarRejectionSpike',
    when: 'a few of a few tokens are refused',
    series: [
      [checks('ok'), '0x30'],
      [checks('expired'), '0+2x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarTokensOfUnknownKeys',
    when: 'a rotation has gone wrong',
    series: [
      [checks('ok'), '0+50x30'],
      [checks('unknown_key'), '0x10 0+40x20'],
      [checks('signature'), '0x30'],
    ],
    at: 25,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarTokensOfUnknownKeys',
    when: 'one of a hundred tokens names a key that somebody made up',
    series: [
      [checks('ok'), '0+990x30'],
      [checks('unknown_key'), '0+10x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarTokensOfUnknownKeys',
    when: 'somebody tries a few tokens where nobody else is',
    series: [
      [checks('ok'), '0x30'],
      [checks('signature'), '0+5x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarCacheHitRatioLow',
    when: 'each token is shown once',
    series: [
      [hits, '0+60x60'],
      [misses, '0+600x60'],
    ],
    at: 60,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarCacheHitRatioLow',
    when: 'tokens are shown again and again',
    series: [
      [hits, '0+6000x60'],
      [misses, '0+600x60'],
    ],
    at: 60,
    fires: [],
  },
  {
    alert: 'AuthSidecarCacheHitRatioLow',
    when: 'a token comes now and then',
    series: [
      [hits, '0x60'],
      [misses, '0+60x60'],
    ],
    at: 60,
    fires: [],
  },
  {
    alert: 'AuthSidecarCacheHitRatioLow',
    when: 'no token comes',
    series: [
      [hits, '0x60'],
      [misses, '0x60'],
    ],
    at: 60,
    fires: [],
  },
  {
    alert: 'AuthSidecarConnectionsDropped',
    when: 'there was no room for a connection',
    series: [[of('auth_sidecar_client_connections_dropped_total'), '0x10 3x10']],
    at: 12,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarConnectionsDropped',
    when: 'that was before a restart',
    series: [[of('auth_sidecar_client_connections_dropped_total'), '3x20 0x10']],
    at: 25,
    fires: [],
  },
  {
    alert: 'AuthSidecarLoginsFailing',
    when: 'the store of credentials is away',
    series: [
      [issued, '0+5x10 50x20'],
      [notIssued('rejected'), '0x30'],
      [notIssued('unavailable'), '0x10 0+5x20'],
    ],
    at: 30,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarLoginsFailing',
    when: 'secrets are wrong, or guessed until guessing is throttled',
    series: [
      [issued, '0+5x30'],
      [notIssued('rejected'), '0+50x30'],
      [notIssued('throttled'), '0+50x30'],
      [notIssued('invalid'), '0+50x30'],
      [notIssued('internal'), '0x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarLoginsFailing',
    when: 'three logins fail in the night',
    series: [
      [issued, '0x30'],
      [notIssued('busy'), '0x10 1x2 2x2 3x16'],
    ],
    at: 25,
    fires: [],
  },
  {
    alert: 'AuthSidecarLoginsFailing',
    when: 'nobody logs in',
    series: [
      [issued, '0x30'],
      [notIssued('busy'), '0x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarLoginsRejected',
    when: 'a big client has the wrong secret',
    series: [
      [issued, '0+2x30'],
      [notIssued('rejected'), '0+20x30'],
    ],
    at: 30,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarLoginsRejected',
    when: 'a tenth of the logins is rejected',
    series: [
      [issued, '0+90x30'],
      [notIssued('rejected'), '0+10x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarLoginsRejected',
    when: 'somebody mistypes a secret a few times',
    series: [
      [issued, '0x30'],
      [notIssued('rejected'), '0x10 0+2x10 20x10'],
    ],
    at: 22,
    fires: [],
  },
  {
    alert: 'AuthSidecarLoginsThrottled',
    when: 'somebody guesses',
    series: [[notIssued('throttled'), '0+10x30']],
    at: 20,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarLoginsThrottled',
    when: 'a client is put off once in a while',
    series: [[notIssued('throttled'), '0x9 1x9 2x9 3x9']],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarUpstreamUnreachable',
    when: 'the service is down',
    series: [
      [outcome('ok'), '0+60x10 600x20'],
      [outcome('connection_refused'), '0x10 0+60x20'],
      [outcome('ok', '/b'), '0+60x30'],
      [outcome('dns_error', '/b'), '0x30'],
    ],
    at: 18,
    fires: [{ ...JOB, upstream: '/' }],
  },
  {
    alert: 'AuthSidecarUpstreamUnreachable',
    when: 'one of ten pods has no service',
    series: [
      [outcome('ok'), '0+90x30'],
      [outcome('connection_refused'), '0+10x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarUpstreamUnreachable',
    when: 'one request a minute is refused while the service starts',
    series: [
      [outcome('ok'), '0x30'],
      [outcome('connection_refused'), '0x10 0+1x4 4x16'],
    ],
    at: 15,
    fires: [],
  },
  {
    alert: 'AuthSidecarUpstreamUnreachable',
    when: 'clients leave',
    series: [
      [outcome('ok'), '0x30'],
      [outcome('client_aborted'), '0+60x30'],
      [outcome('connection_refused'), '0x30'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarUpstreamFailing',
    when: 'a tenth of the answers does not come in time',
    series: [
      [outcome('ok'), '0+90x40'],
      [outcome('http_response_timeout'), '0+10x40'],
    ],
    at: 30,
    fires: [{ ...POD, upstream: '/' }],
  },
  {
    alert: 'AuthSidecarUpstreamFailing',
    when: 'clients leave, and the service is well',
    series: [
      [outcome('ok'), '0+90x40'],
      [outcome('client_aborted'), '0+50x40'],
      [outcome('client_idle'), '0+50x40'],
      [outcome('http_response_timeout'), '0+1x40'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarUpstreamFailing',
    when: 'one of a few requests in the night fails',
    series: [
      [outcome('ok'), '0+1x40'],
      [outcome('connection_terminated'), '0+1x40'],
    ],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarUpstreamPoolFull',
    when: 'requests wait all the time',
    series: [[of('auth_sidecar_upstream_queue', { upstream: '/' }), '0x5 4x30']],
    at: 20,
    fires: [{ ...POD, upstream: '/' }],
  },
  {
    alert: 'AuthSidecarUpstreamPoolFull',
    when: 'requests are refused since too many wait',
    series: [[outcome('connection_limit_reached'), '0x5 0+9x30']],
    at: 20,
    fires: [{ ...POD, upstream: '/' }],
  },
  {
    alert: 'AuthSidecarUpstreamPoolFull',
    when: 'requests wait at times',
    series: [
      [of('auth_sidecar_upstream_queue', { upstream: '/' }), '0x3 9x3 0x1 9x3 0x1 9x3 0x1 9x3 0x1 9x3'],
      [outcome('connection_limit_reached'), '0x40'],
    ],
    at: 20,
    fires: [],
  },
  {
    alert: 'AuthSidecarReloadFailing',
    when: 'a bad file is there for ten minutes',
    series: [
      [of('auth_sidecar_reload_failing', { subject: 'keys' }), '0x5 1x15'],
      [of('auth_sidecar_reload_failing', { subject: 'revocations' }), '0x20'],
    ],
    at: 15,
    fires: [{ ...POD, subject: 'keys' }],
  },
  {
    alert: 'AuthSidecarReloadFailing',
    when: 'a file was read while it was being written',
    series: [[of('auth_sidecar_reload_failing', { subject: 'keys' }), '0x5 1x1 0x15']],
    at: 15,
    fires: [],
  },
  {
    alert: 'AuthSidecarSigningKeyDue',
    when: 'the key is 81 days old',
    series: [[of('auth_sidecar_signing_key_age_seconds', { kid: 'k1' }), `${81 * DAY}+60x90`]],
    at: 90,
    fires: [{ ...JOB, kid: 'k1' }],
  },
  {
    alert: 'AuthSidecarSigningKeyDue',
    when: 'it is too old already, which another alert says, or is young',
    series: [
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'k1' }), `${91 * DAY}+60x90`],
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'k2' }, OTHER), `${DAY}+60x90`],
    ],
    at: 90,
    fires: [],
  },
  {
    alert: 'AuthSidecarSigningKeyTooOld',
    when: 'the key is 91 days old, in two replicas',
    series: [
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'k1' }), `${91 * DAY}+60x90`],
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'k1' }, OTHER), `${91 * DAY}+60x90`],
    ],
    at: 90,
    fires: [{ ...JOB, kid: 'k1' }],
  },
  {
    alert: 'AuthSidecarSigningKeyTooOld',
    when: 'another key has taken its place',
    series: [
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'k1' }), `${91 * DAY}+60x20 stale`],
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'k2' }), '_x20 0+60x80'],
    ],
    at: 90,
    fires: [],
  },
  {
    alert: 'AuthSidecarSigningKeysDiffer',
    when: 'a rotation has reached one of two replicas',
    series: [
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'new' }), '0+60x60'],
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'old' }, OTHER), `${9 * DAY}+60x60`],
    ],
    at: 40,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarSigningKeysDiffer',
    when: 'a rotation is under way for a minute',
    series: [
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'new' }), '0+60x60'],
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'old' }, OTHER), `${9 * DAY}+60x2 stale`],
      [of('auth_sidecar_signing_key_age_seconds', { kid: 'new' }, OTHER), '_x3 180+60x57'],
    ],
    at: 40,
    fires: [],
  },
  {
    alert: 'AuthSidecarKeyNotRetired',
    when: 'no token of a key is alive for more than a day',
    series: [
      [of('auth_sidecar_key_token_lifetime_seconds', { kid: 'old' }), '0x160'],
      [of('auth_sidecar_key_token_lifetime_seconds', { kid: 'new' }), `${DAY}x160`],
    ],
    every: 10,
    at: 1500,
    fires: [{ ...JOB, kid: 'old' }],
  },
  {
    alert: 'AuthSidecarKeyNotRetired',
    when: 'tokens of the key may be alive in one of two replicas',
    series: [
      [of('auth_sidecar_key_token_lifetime_seconds', { kid: 'old' }), '0x160'],
      [of('auth_sidecar_key_token_lifetime_seconds', { kid: 'old' }, OTHER), '600x160'],
    ],
    every: 10,
    at: 1500,
    fires: [],
  },
  {
    alert: 'AuthSidecarKeySetStale',
    when: 'the issuer has been away for ten minutes',
    series: [[of('auth_sidecar_jwks_age_seconds'), '0+60x12']],
    at: 10,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarKeySetStale',
    when: 'the set comes every minute',
    series: [[of('auth_sidecar_jwks_age_seconds'), '30x30']],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarCertificateExpiring',
    when: 'a certificate is good for another ten days',
    series: [[certificate(), `${10 * DAY}x90`]],
    at: 90,
    fires: [{ ...POD, certificate: 'listener' }],
  },
  {
    alert: 'AuthSidecarCertificateExpiring',
    when: 'a certificate is good for a month, and another is nearly over, which another alert says',
    series: [
      [certificate(), `${30 * DAY}x90`],
      [certificate(OTHER), `${DAY}x90`],
    ],
    at: 90,
    fires: [],
  },
  {
    alert: 'AuthSidecarCertificateExpired',
    when: 'a certificate has a day left',
    series: [[certificate(), `${DAY}x90`]],
    at: 30,
    fires: [{ ...POD, certificate: 'listener' }],
  },
  {
    alert: 'AuthSidecarCertificateExpired',
    when: 'a certificate has been replaced',
    series: [[certificate(), `${DAY}x20 ${90 * DAY}x70`]],
    at: 30,
    fires: [],
  },
  {
    alert: 'AuthSidecarNoneReady',
    when: 'no replica is ready',
    series: [
      [of('auth_sidecar_ready'), '1x5 0x10'],
      [of('auth_sidecar_ready', {}, OTHER), '0x15'],
    ],
    at: 10,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarNoneReady',
    when: 'no replica answers any more',
    series: [
      [of('auth_sidecar_ready'), '1x5 stale'],
      [of('up'), '1x5 0x10'],
      [of('auth_sidecar_ready', {}, OTHER), '1x5 stale'],
      [of('up', {}, OTHER), '1x5 0x10'],
    ],
    at: 10,
    fires: [JOB],
  },
  {
    alert: 'AuthSidecarNoneReady',
    when: 'one of two replicas starts, and something else is down',
    series: [
      [of('auth_sidecar_ready'), '1x15'],
      [of('up'), '1x15'],
      [of('auth_sidecar_ready', {}, OTHER), '0x15'],
      [of('up', {}, OTHER), '0x15'],
      [of('up', {}, foreign), '0x15'],
    ],
    at: 10,
    fires: [],
  },
  {
    alert: 'AuthSidecarNotReady',
    when: 'one of two replicas waits for its database',
    series: [
      [of('auth_sidecar_ready'), '0x15'],
      [of('auth_sidecar_ready', {}, OTHER), '1x15'],
    ],
    at: 10,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarNotReady',
    when: 'a replica drains and is gone',
    series: [[of('auth_sidecar_ready'), '1x5 0x1 stale']],
    at: 15,
    fires: [],
  },
  {
    alert: 'AuthSidecarScrapeFailing',
    when: 'a sidecar hangs',
    series: [
      [build, '1x5 stale'],
      [of('up'), '1x5 0x15'],
    ],
    at: 15,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarScrapeFailing',
    when: 'it was only once, the pod has gone, or it is not a sidecar that is down',
    series: [
      [build, '1x20'],
      [of('up'), '1x5 0x1 1x14'],
      [of('auth_sidecar_build_info', { version: '1.0.0', node: 'v26.1.0' }, OTHER), '1x5 stale'],
      [of('up', {}, OTHER), '1x5 stale'],
      [of('up', {}, foreign), '0x20'],
    ],
    at: 15,
    fires: [],
  },
  {
    alert: 'AuthSidecarAbsent',
    when: 'no sidecar is scraped',
    series: [[of('up', {}, foreign), '1x30']],
    at: 20,
    fires: [{}],
  },
  { alert: 'AuthSidecarAbsent', when: 'one is', series: [[build, '1x30']], at: 20, fires: [] },
  {
    alert: 'AuthSidecarRestarting',
    when: 'it starts every few minutes',
    series: [
      [build, '1x30'],
      [of('process_start_time_seconds'), '0x5 300x5 600x5 900x15'],
    ],
    at: 20,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarRestarting',
    when: 'it was started once, and another program starts again and again',
    series: [
      [build, '1x30'],
      [of('process_start_time_seconds'), '0x5 300x25'],
      [of('process_start_time_seconds', {}, foreign), '0x5 300x5 600x5 900x15'],
    ],
    at: 20,
    fires: [],
  },
  {
    alert: 'AuthSidecarEventLoopLate',
    when: 'the event loop is late all the time',
    series: [
      [build, '1x20'],
      [of('nodejs_eventloop_lag_p99_seconds'), '0.3x20'],
    ],
    at: 10,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarEventLoopLate',
    when: 'it was late once, and another program always is',
    series: [
      [build, '1x20'],
      [of('nodejs_eventloop_lag_p99_seconds'), '0.011x5 0.3x2 0.011x13'],
      [of('nodejs_eventloop_lag_p99_seconds', {}, foreign), '9x20'],
    ],
    at: 10,
    fires: [],
  },
  {
    alert: 'AuthSidecarFileDescriptorsLow',
    when: 'nine of ten are in use',
    series: [
      [build, '1x20'],
      [of('process_open_fds'), '900x20'],
      [of('process_max_fds'), '1000x20'],
    ],
    at: 10,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarFileDescriptorsLow',
    when: 'half of them are, and another program runs out',
    series: [
      [build, '1x20'],
      [of('process_open_fds'), '500x20'],
      [of('process_max_fds'), '1000x20'],
      [of('process_open_fds', {}, foreign), '1000x20'],
      [of('process_max_fds', {}, foreign), '1000x20'],
    ],
    at: 10,
    fires: [],
  },
  {
    alert: 'AuthSidecarLogLinesDropped',
    when: 'lines are lost',
    series: [[of('auth_sidecar_log_lines_dropped_total'), '0x5 12x10']],
    at: 8,
    fires: [POD],
  },
  {
    alert: 'AuthSidecarLogLinesDropped',
    when: 'that was an hour ago, or before a restart',
    series: [
      [of('auth_sidecar_log_lines_dropped_total'), '0x5 12x65'],
      [of('auth_sidecar_log_lines_dropped_total', {}, OTHER), '12x65 0x5'],
    ],
    at: 68,
    fires: [],
  },
]
