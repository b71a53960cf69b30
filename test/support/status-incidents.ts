/** The status of a sidecar in incidents, as an operator sees it on the page. */
import type { Metrics } from '../../src/ops/metrics.ts'
import { type SetupOptions, statusSetup } from './status-setup.ts'

interface Incident {
  readonly setup?: SetupOptions
  /**
   * What happens in each step of five seconds. `isNow`: in the incident, which has lasted for two minutes.
   */
  readonly act: (metrics: Metrics, isNow: boolean) => void
}

const good = (metrics: Metrics, count: number) => {
  for (let at = 0; at < count; at++) {
    metrics.onRequest('proxy', 'GET', 200, 0.004)
    metrics.onTokenCheck('ok')
    metrics.ofUpstream('/').onOutcome('ok')
    metrics.ofUpstream('/').onResponse(200, 0.003)
  }
}

const refused = (metrics: Metrics, reason: 'revoked' | 'unknown_key' | 'missing', count: number) => {
  for (let at = 0; at < count; at++) {
    metrics.onRequest('proxy', 'GET', 400, 0.0004)
    metrics.onTokenCheck(reason)
  }
}

const failing = (
  metrics: Metrics,
  outcome: 'connection_refused' | 'connection_limit_reached',
  count: number,
) => {
  for (let at = 0; at < count; at++) {
    metrics.onRequest('proxy', 'GET', 503, 0.002)
    metrics.onTokenCheck('ok')
    metrics.ofUpstream('/').onOutcome(outcome)
  }
}

export const INCIDENTS: Readonly<Record<string, Incident>> = {
  'an upstream is down': {
    act(metrics, isNow) {
      if (isNow) {
        failing(metrics, 'connection_refused', 50)
      } else {
        good(metrics, 50)
      }
    },
  },
  'the credentials file was emptied': {
    setup: {
      authData: {
        activeCredentials: () => 0,
        suspicions: { suspect: () => [['credentials', 1]], fingerprints: () => [] },
      },
    },
    act(metrics, isNow) {
      good(metrics, isNow ? 0 : 50)
      refused(metrics, 'revoked', isNow ? 50 : 0)
      refused(metrics, 'missing', 1)
    },
  },
  'the database is down': {
    setup: {
      credentials: { file: undefined, postgres: { urlFile: 'url', poolSize: 1 } },
      checks: [
        { name: 'keys', ok: true },
        { name: 'credentials', ok: true, state: 'database down, last snapshot active' },
        { name: 'accepting', ok: true },
      ],
    },
    act(metrics, isNow) {
      good(metrics, 50)
      if (isNow) {
        metrics.onRequest('token_issue', 'POST', 503, 0.001)
        metrics.onEvent({ event: 'login_failed', method: 'token', reason: 'unavailable' })
      }
    },
  },
  'the queue of an upstream is full': {
    act(metrics, isNow) {
      good(metrics, 50)
      failing(metrics, 'connection_limit_reached', isNow ? 20 : 0)
    },
  },
  'replicas have other keys': {
    setup: { name: 'storage-gateway-7c9d8b6f5-with-a-long-name-x2v9q.storage.example.internal' },
    act(metrics, isNow) {
      good(metrics, isNow ? 10 : 50)
      refused(metrics, 'unknown_key', isNow ? 40 : 0)
    },
  },
}

/** The document of `/status.json` two minutes into the incident. */
export async function statusIn({ setup = {}, act }: Incident) {
  const { metrics, samples, step, report } = statusSetup({
    accounts: {
      requests: [
        { account: 'analytics', count: 5204 },
        { account: 'backup-of-a-customer-with-a-very-long-account-name', count: 120 },
      ],
      bytes: [{ account: 'analytics', count: 88_204_118_200 }],
      refusals: [{ account: 'web', count: 568 }],
    },
    ...setup,
  })
  await samples.sample()
  for (let at = 0; at < 120; at++) {
    act(metrics, at >= 96)
    await step()
  }
  return report()
}
