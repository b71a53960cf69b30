/**
 * Tells how the keys of another issuer are doing.
 *
 * In: how each fetch of its JWK Set ended. Out: series for a scrape.
 *
 * @module
 */
import type { Registry } from 'prom-client'
import { FETCH_RESULTS, type FetchResult, type RemoteKeysState } from '../keys/remote-keys.ts'
import { registerSeries, WordTally } from './tally.ts'

/** What the series are made of. */
export interface JwksMetricsOptions {
  readonly registry: Registry
  readonly state: () => RemoteKeysState
}

/** Registers the series; returns what counts a fetch. */
export function createJwksMetrics({ registry, state }: JwksMetricsOptions): (result: FetchResult) => void {
  const fetches = new WordTally(FETCH_RESULTS)
  registerSeries(
    registry,
    {
      name: 'auth_sidecar_jwks_fetches_total',
      help: 'Fetches of the JWK Set that brought a good one (ok) or none (failed).',
      type: 'counter',
    },
    () => [...fetches.entries()].map(([result, value]) => ({ labels: { result }, value })),
  )
  registerSeries(
    registry,
    {
      name: 'auth_sidecar_jwks_age_seconds',
      help: 'Seconds since the issuer last sent a good JWK Set; absent before the first.',
      type: 'gauge',
      aggregator: 'max',
    },
    () => {
      const { ageSeconds } = state()
      return ageSeconds === undefined ? [] : [{ labels: {}, value: ageSeconds }]
    },
  )
  return (result) => fetches.add(result)
}
