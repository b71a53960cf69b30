/** The examples for hosts without Kubernetes: Compose and systemd. */
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { VERSION } from '../../src/version.ts'
import { without } from '../support/other-programs.ts'

const compose = parse(readFileSync('examples/compose/compose.yaml', 'utf8'), { merge: true })
const UNIT = 'storage-auth-sidecar.service'

t.test('Compose: clients reach the sidecar alone, whose settings are valid', async (t) => {
  const { sidecar, storage, prometheus, postgres, ...commands } = compose.services
  const loaded = loadConfig({ file: 'examples/compose/sidecar.yaml', env: {}, flags: {} })
  t.match(loaded, { ok: true, value: { config: { upstreams: [{ url: 'http://storage:9000' }] } } })
  for (const one of [sidecar, ...Object.values<object>(commands)])
    t.match(one, { image: `storage-auth-sidecar:${VERSION}`, read_only: true, cap_drop: ['ALL'] })
  t.strictSame(storage.networks, ['storage'])
  for (const name of ['storage', 'database']) t.match(compose.networks[name], { internal: true })
  for (const one of [storage, postgres]) t.notOk(one.ports)
  t.match(sidecar.ports, ['8080:8080', /^127\.0\.0\.1:/])
  t.match(prometheus.ports, [/^127\.0\.0\.1:/])
})

t.test('Compose accepts the file', { skip: without('docker', 'compose', 'version') }, async (t) => {
  const directory = t.testdir()
  cpSync('examples/compose', directory, { recursive: true })
  mkdirSync(join(directory, 'etc'))
  writeFileSync(join(directory, 'etc/postgres.password'), '')
  const args = ['compose', '--project-directory', directory, 'config', '--quiet']
  const { status, stderr } = spawnSync('docker', args)
  t.equal(status, 0, String(stderr))
})

t.test('Prometheus accepts its settings', { skip: without('promtool', '--version') }, async (t) => {
  const { status, stderr } = spawnSync('promtool', ['check', 'config', 'examples/compose/prometheus.yml'])
  t.equal(status, 0, String(stderr))
})

t.test('systemd accepts the unit, and finds it hardened', { skip: without('systemd-analyze') }, async (t) => {
  const file = join(t.testdir(), UNIT)
  copyFileSync(join('examples/systemd', UNIT), file)
  const verified = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' })
  t.strictSame([verified.status, verified.stderr], [0, ''])
  const args = ['security', '--offline=true', '--no-pager', file]
  const { stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' })
  const [, exposure] = /exposure level for .*: ([\d.]+)/.exec(stdout) ?? []
  t.ok(Number(exposure) <= 1.5, `exposure ${exposure}`)
})
