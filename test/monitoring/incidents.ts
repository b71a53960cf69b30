/**
 * Incidents as series of Prometheus, a sample each 30 s.
 * Each begins after an hour of good service.
 * docs/alerts.md says which alert tells of each, and after how many minutes; `incidents.test.ts` compares.
 */

export const ONSET_MINUTES = 60
const BEFORE = 2 * ONSET_MINUTES
const AFTER = 140

type Labels = Readonly<Record<string, string>>
export type Series = Readonly<Record<string, string>>
/** The alert without `AuthSidecar`, its severity, and the series. */
export type Incident = Readonly<{ alert: string; severity: 'critical' | 'warning'; series: Series }>

const first = { namespace: 'shop', job: 'api', pod: 'api-1', instance: '10.0.0.1:8081' }
const second = { namespace: 'shop', job: 'api', pod: 'api-2', instance: '10.0.0.2:8081' }

function name(metric: string, labels: Labels = {}, pod: Labels = first): string {
  const all = Object.entries({ ...pod, ...labels }).map(([label, value]) => `${label}="${value}"`)
  return `${metric}{${all}}`
}
const own = (metric: string, labels: Labels = {}, pod: Labels = first) =>
  name(`auth_sidecar_${metric}`, labels, pod)

/** A counter that grows by so many a minute before and after the onset. */
function counter(before: number, after: number): string {
  const reached = (before / 2) * BEFORE
  return `0+${before / 2}x${BEFORE} ${reached + after / 2}+${after / 2}x${AFTER}`
}
const gauge = (before: number | string, after: number | string) => `${before}x${BEFORE} ${after}x${AFTER}`

const checks = (reason: string, before: number, after: number): Series => {
  const result = reason === 'ok' ? 'accepted' : 'rejected'
  return { [own('token_checks_total', { result, reason })]: counter(before, after) }
}
const logins = (before: number, after: number): Series => ({
  [own('tokens_issued_total')]: counter(before, after),
})
const failedLogins = (reason: string, after: number): Series => ({
  [own('token_issue_failures_total', { reason })]: counter(0, after),
})
const upstream = { upstream: '/' }
const outcomes = (outcome: string, before: number, after: number): Series => ({
  [own('upstream_requests_total', { ...upstream, outcome })]: counter(before, after),
})
const responses = (statusClass: string, before: number, after: number): Series => ({
  [own('upstream_responses_total', { ...upstream, class: statusClass })]: counter(before, after),
})
/** Responses, of which those of a bucket take longer than half a second. */
const slowResponses = (before: number, after: number): Series => ({
  [own('upstream_response_seconds_count', upstream)]: counter(120, 120),
  [own('upstream_response_seconds_bucket', { ...upstream, le: '0.5' })]: counter(120 - before, 120 - after),
  [own('upstream_response_seconds_bucket', { ...upstream, le: '5' })]: counter(120, 120),
  [own('upstream_response_seconds_bucket', { ...upstream, le: '+Inf' })]: counter(120, 120),
})
const keysChanged: Series = { [own('reloads_total', { subject: 'keys', result: 'ok' })]: gauge(0, 1) }
const credentialsChanged: Series = {
  [own('reloads_total', { subject: 'credentials', result: 'ok' })]: gauge(0, 1),
}
const signingKey: Series = { [own('signing_key_age_seconds', { kid: 'k' })]: `100+30x${BEFORE + AFTER}` }
const target = { container: 'storage-auth-sidecar' }
const lasting = (value: number) => gauge(value, value)
const suspect = (subject: string): Series => ({ [own('reload_suspect', { subject })]: gauge(0, 1) })

export const INCIDENTS: Readonly<Record<string, Incident>> = {
  'an upstream is gone': {
    alert: 'UpstreamUnreachable',
    severity: 'critical',
    series: {
      ...outcomes('ok', 120, 0),
      ...outcomes('connection_refused', 0, 120),
      ...responses('2xx', 120, 0),
    },
  },
  'an upstream responds with 5xx to a tenth of the requests': {
    alert: 'Failing',
    severity: 'critical',
    series: {
      ...outcomes('ok', 120, 120),
      ...outcomes('http_response_timeout', 0, 0),
      ...responses('2xx', 120, 108),
      ...responses('5xx', 0, 12),
    },
  },
  'an upstream truncates a tenth of its responses': {
    alert: 'Failing',
    severity: 'critical',
    series: {
      ...outcomes('ok', 120, 108),
      ...outcomes('http_response_incomplete', 0, 12),
      ...responses('2xx', 120, 120),
      ...responses('5xx', 0, 0),
    },
  },
  'an upstream is slow': { alert: 'UpstreamSlow', severity: 'warning', series: slowResponses(0, 60) },
  'no replica is ready': {
    alert: 'Down',
    severity: 'critical',
    series: { [own('ready')]: gauge(1, 0), [own('ready', {}, second)]: gauge(1, 0) },
  },
  'one of two replicas is not ready': {
    alert: 'ReplicaUnhealthy',
    severity: 'warning',
    series: { [own('ready')]: gauge(1, 0), [own('ready', {}, second)]: gauge(1, 1) },
  },
  'a new pod never starts': {
    alert: 'ReplicaUnhealthy',
    severity: 'warning',
    series: { [name('up', target)]: lasting(1), [name('up', target, second)]: `_x${BEFORE} 0x${AFTER}` },
  },
  'all targets vanish': {
    alert: 'Absent',
    severity: 'critical',
    series: { [own('build_info')]: `1x${BEFORE} stale`, [name('up')]: `1x${BEFORE} stale` },
  },
  'the process ends again and again': {
    alert: 'Restarting',
    severity: 'warning',
    series: {
      [own('build_info')]: lasting(1),
      [name('process_start_time_seconds')]: `0x${BEFORE} 3600x4 3720x${AFTER}`,
    },
  },
  'the credentials file is emptied': {
    alert: 'ReloadSuspect',
    severity: 'critical',
    series: suspect('credentials'),
  },
  'every credential is disabled': {
    alert: 'ClientsRefused',
    severity: 'critical',
    series: { ...checks('ok', 120, 0), ...checks('revoked', 0, 120), ...credentialsChanged },
  },
  'the keys are replaced: unknown_key for all': {
    alert: 'ClientsRefused',
    severity: 'critical',
    series: { ...checks('ok', 120, 0), ...checks('unknown_key', 0, 120), ...keysChanged },
  },
  'no secret is right any more': {
    alert: 'ClientsRefused',
    severity: 'critical',
    series: { ...logins(6, 0), ...failedLogins('rejected', 6), ...credentialsChanged },
  },
  'the clock of one of two replicas is 10 minutes behind': {
    alert: 'ClockSkew',
    severity: 'critical',
    series: {
      [own('signing_key_age_seconds', { kid: 'k' }, second)]: `100+30x${BEFORE + AFTER}`,
      [own('signing_key_age_seconds', { kid: 'k' })]: `100+30x${BEFORE} 3130+30x${AFTER}`,
    },
  },
  'an old backup un-revokes a customer': {
    alert: 'ReloadSuspect',
    severity: 'critical',
    series: suspect('revocations'),
  },
  'a credentials file is replaced behind its mount': {
    alert: 'ReloadSuspect',
    severity: 'critical',
    series: suspect('credentials'),
  },
  'a database is restored from an older backup': {
    alert: 'ReloadSuspect',
    severity: 'critical',
    series: { ...suspect('credentials'), ...suspect('revocations') },
  },
  'replicas have different keys': {
    alert: 'StateDiffers',
    severity: 'warning',
    series: {
      [own('state_fingerprint', { subject: 'keys' })]: lasting(7),
      [own('state_fingerprint', { subject: 'keys' }, second)]: gauge(7, 8),
    },
  },
  'the newest keys cannot be used': {
    alert: 'ReloadFailing',
    severity: 'warning',
    series: { [own('reload_failing', { subject: 'keys' })]: gauge(0, 1) },
  },
  'an issuer does not respond': {
    alert: 'ReloadFailing',
    severity: 'warning',
    series: { [own('jwks_age_seconds', { issuer: 'idp' })]: `30x${BEFORE} 30+30x${AFTER}` },
  },
  'no hub of the feed responds to a follower': {
    alert: 'FeedStale',
    severity: 'warning',
    series: {
      [own('feed_age_seconds')]: `15x${BEFORE} 15+30x${AFTER}`,
      [own('reload_failing', { subject: 'credentials' })]: gauge(0, 1),
    },
  },
  'the credentials database is down': {
    alert: 'LoginsFailing',
    severity: 'critical',
    series: {
      ...logins(6, 0),
      ...failedLogins('unavailable', 6),
      ...signingKey,
      [own('reload_failing', { subject: 'credentials' })]: gauge(0, 1),
    },
  },
  'secrets are guessed': {
    alert: 'LoginsRefused',
    severity: 'warning',
    series: { ...logins(6, 6), ...failedLogins('rejected', 600) },
  },
  'an account sends ten times its limit': {
    alert: 'AccountLimited',
    severity: 'warning',
    series: {
      ...checks('ok', 120, 132),
      ...checks('fair_use', 0, 108),
      [own('fair_use_limited_total', { limit: 'requests' })]: counter(0, 108),
    },
  },
  'no open file is left': {
    alert: 'OpenFilesUsedUp',
    severity: 'critical',
    series: { [own('open_files_used_up')]: gauge(0, 1) },
  },
  'new connections are closed': {
    alert: 'Overloaded',
    severity: 'critical',
    series: { [own('client_connections_dropped_total')]: counter(0, 60) },
  },
  'requests wait for connections of an upstream': {
    alert: 'Overloaded',
    severity: 'warning',
    series: { [own('upstream_queue', upstream)]: gauge(0, 9) },
  },
  'a certificate ends within a day': {
    alert: 'CertificateExpiring',
    severity: 'critical',
    series: {
      [own('certificate_not_after_timestamp_seconds', { certificate: 'listener' })]: gauge(
        100 * 86_400,
        86_400,
      ),
    },
  },
  'the collector of spans is away': {
    alert: 'SpansDropped',
    severity: 'warning',
    series: { [own('spans_dropped_total')]: counter(0, 4) },
  },
}
