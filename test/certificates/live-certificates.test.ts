import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { certificateSets } from '../../src/certificates/certificate-sets.ts'
import { loadCertificateSets } from '../../src/certificates/live-certificates.ts'
import { createLog } from '../../src/ops/log.ts'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { writePair } from '../support/secured.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const NOT_AFTER = Math.floor(Date.now() / 1000) * 1000 + 86_400_000
const make = (commonName: string) => makeCertificate({ commonName, notAfter: NOT_AFTER })

/** Certificates of a listener and two upstreams, the second of which has none of our own. */
async function scene(t: Test) {
  const directory = await temporaryDirectory(t)
  const path = (...names: readonly string[]) => join(directory, ...names)
  const first = make('first')
  for (const name of ['listener', 'a']) writePair(path(name), first)
  writeFileSync(path('ca.pem'), makeCertificate({ commonName: 'authority', authority: true }).cert)
  const pair = (name: string) => ({
    certFile: path(name, 'cert.pem'),
    keyFile: path(name, 'key.pem'),
  })
  const sets = certificateSets({
    tls: pair('listener'),
    upstreams: [{ prefix: '/' }, { prefix: '/a', ...pair('a') }, { prefix: '/b', caFile: path('ca.pem') }],
  })
  const told: string[] = []
  const load = () =>
    loadCertificateSets(sets, {
      log: createLog('silent', { write: () => {} }),
      now: Date.now,
      onListenerCertificates: ({ cert }) => void told.push(`listener ${String(cert).length}`),
      onReload: (result, _seconds, set) => void told.push(`${set} ${result}`),
    })
  // Following files keeps no process alive.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  return { path, first, load, told }
}

t.test('each set is there under its name, with when our certificate expires', async (t) => {
  const { load, first } = await scene(t)
  const loaded = await load()
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  t.strictSame(loaded.warnings, [])
  const live = loaded.follow()
  t.teardown(live.stop)
  t.equal(String(live.listener()?.cert), first.cert)
  t.equal(live.upstream('/'), undefined)
  t.not(live.upstream('/a')?.(), live.upstream('/b')?.())
  t.strictSame(live.expiries(), [
    { certificate: 'listener', expiresAt: NOT_AFTER },
    { certificate: 'upstream:/a', expiresAt: NOT_AFTER },
  ])
})

t.test('a set changes by itself, and only the listener\u2019s is told', async (t) => {
  const { load, path, told } = await scene(t)
  const loaded = await load()
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  const live = loaded.follow()
  t.teardown(live.stop)
  const before = live.upstream('/a')?.()
  writePair(path('a'), make('second'))
  await eventually(() => told.includes('upstream:/a ok'), 'the upstream\u2019s to be in force')
  t.not(live.upstream('/a')?.(), before)
  t.strictSame(told, ['upstream:/a ok'])
  const second = make('second')
  writePair(path('listener'), second)
  writeFileSync(path('a', 'key.pem'), 'broken')
  await eventually(() => told.length === 4, 'the others')
  t.strictSame(told.slice(1).sort(), [`listener ${second.cert.length}`, 'listener ok', 'upstream:/a failed'])
  t.equal(String(live.listener()?.cert), second.cert)
  await live.refresh()
  t.equal(told.slice(4).filter((line) => line.endsWith('failed')).length, 1, 'told again when asked')
  live.stop()
})

t.test(
  'everything that is wrong is told in the order of the settings, and nothing is followed',
  async (t) => {
    const { load, path, told } = await scene(t)
    writeFileSync(path('ca.pem'), '')
    writeFileSync(path('listener', 'cert.pem'), '')
    writeFileSync(path('a', 'key.pem'), '')
    const loaded = await load()
    if (loaded.ok) throw new Error('these were not to be usable')
    t.strictSame(
      loaded.problems.map((problem) => problem.path),
      ['listen.tls.certFile', 'upstreams[1].keyFile', 'upstreams[2].caFile'],
    )
    t.strictSame(told, [])
  },
)
