import { Registry } from 'prom-client'
import t from 'tap'
import type { RemoteKeysState } from '../../src/keys/remote-keys.ts'
import { createJwksMetrics } from '../../src/ops/jwks-metrics.ts'

t.test('fetches are counted by result, the age of the set is told once there is one', async (t) => {
  const registry = new Registry()
  let state: RemoteKeysState = { loaded: false }
  const onFetch = createJwksMetrics({ registry, state: () => state })
  const early = await registry.metrics()
  t.match(early, 'auth_sidecar_jwks_fetches_total{result="ok"} 0\n')
  t.notMatch(early, /^auth_sidecar_jwks_age_seconds/m)
  onFetch('failed')
  onFetch('ok')
  onFetch('failed')
  state = { loaded: true, ageSeconds: 7.5, lastFetch: 'failed' }
  const text = await registry.metrics()
  t.match(text, 'auth_sidecar_jwks_fetches_total{result="ok"} 1\n')
  t.match(text, 'auth_sidecar_jwks_fetches_total{result="failed"} 2\n')
  t.match(text, 'auth_sidecar_jwks_age_seconds 7.5\n')
})
