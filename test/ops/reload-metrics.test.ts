import { Registry } from 'prom-client'
import t from 'tap'
import { createReloadMetrics } from '../../src/ops/reload-metrics.ts'

t.test('each subject has its series from the start, and only subjects that are there', async (t) => {
  const registry = new Registry()
  const { onReload } = createReloadMetrics({ registry, subjects: ['keys', 'revocations'], now: () => 5000 })
  onReload('certificates', 'ok', 1)
  const text = await registry.metrics()
  for (const line of [
    'auth_sidecar_reloads_total{subject="keys",result="ok"} 0',
    'auth_sidecar_reloads_total{subject="revocations",result="failed"} 0',
    'auth_sidecar_reload_seconds_count{subject="keys"} 0',
    'auth_sidecar_reload_last_good_timestamp_seconds{subject="keys"} 5',
    'auth_sidecar_reload_failing{subject="revocations"} 0',
  ]) {
    t.match(text, `${line}\n`)
  }
  t.notMatch(text, 'certificates')
})

t.test(
  'reloads are counted by result, and the time of the last good version moves with good ones',
  async (t) => {
    const registry = new Registry()
    let time = 1000
    const { onReload } = createReloadMetrics({ registry, subjects: ['keys'], now: () => time })
    time = 2000
    onReload('keys', 'ok', 0.2)
    onReload('keys', 'ok')
    time = 3000
    onReload('keys', 'failed')
    const text = await registry.metrics()
    for (const line of [
      'auth_sidecar_reloads_total{subject="keys",result="ok"} 2',
      'auth_sidecar_reloads_total{subject="keys",result="failed"} 1',
      'auth_sidecar_reload_seconds_bucket{subject="keys",le="0.1"} 0',
      'auth_sidecar_reload_seconds_bucket{subject="keys",le="0.25"} 1',
      'auth_sidecar_reload_seconds_sum{subject="keys"} 0.2',
      'auth_sidecar_reload_seconds_count{subject="keys"} 1',
      'auth_sidecar_reload_last_good_timestamp_seconds{subject="keys"} 2',
      'auth_sidecar_reload_failing{subject="keys"} 1',
    ]) {
      t.match(text, `${line}\n`)
    }
    onReload('keys', 'ok')
    t.match(await registry.metrics(), 'auth_sidecar_reload_failing{subject="keys"} 0')
  },
)

t.test('a subject fails for as long as one of its parts does', async (t) => {
  const registry = new Registry()
  const { onReload } = createReloadMetrics({ registry, subjects: ['certificates'], now: () => 0 })
  const failing = async () =>
    /auth_sidecar_reload_failing\{subject="certificates"\} (\d)/.exec(await registry.metrics())?.[1]
  onReload('certificates', 'failed', undefined, 'listener')
  onReload('certificates', 'failed', undefined, 'upstream:/')
  onReload('certificates', 'ok', 0.1, 'listener')
  t.equal(await failing(), '1', 'the upstream\u2019s are still the old ones')
  onReload('certificates', 'ok', 0.1, 'upstream:/')
  t.equal(await failing(), '0')
})
