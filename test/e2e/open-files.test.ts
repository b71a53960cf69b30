import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { eventually, succeeds } from '../support/eventually.ts'
import { makeKey, writeKey } from '../support/keys.ts'
import { without } from '../support/other-programs.ts'
import { prepareFiles, serve } from '../support/program.ts'
import { metricAt } from '../support/prometheus.ts'
import { rawClient, rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'

const OPEN_FILES = 256
/** Longer than three polls, after which a changed directory would be loaded. */
const SOME_POLLS_MS = 2500

/** A sidecar in a process of its own that may open few files. */
async function setup(t: Test) {
  const upstream = await recordingUpstream(t)
  const { files, token } = await prepareFiles(t)
  const runner = ['prlimit', `--nofile=${OPEN_FILES}:${OPEN_FILES}`]
  const flags = { ...files, 'upstream-url': upstream.url, workers: '1', 'log-access': 'off' }
  const sidecar = await serve(t, flags, { runner })
  const get = `GET /object HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`
  const admin = (path: string) =>
    rawRequest(t, sidecar.adminPort, `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
  const metric = (name: string) => metricAt(sidecar.adminPort, name)
  /** The number that the next file would have: a limit of this number leaves none. */
  function nextFile(): number {
    const open = new Set(readdirSync(`/proc/${sidecar.pid}/fd`))
    let next = 0
    while (open.has(String(next))) {
      next++
    }
    return next
  }
  return { sidecar, files, get, admin, metric, nextFile }
}

t.test(
  'clients beyond a low ulimit leave files for probes, upstreams and keys',
  {
    skip: without('prlimit'),
  },
  async (t) => {
    const { sidecar, files, get, admin, metric } = await setup(t)
    const warnings = sidecar.log().filter(({ msg }) => /^the limit of open files is low/.test(String(msg)))
    t.match(warnings, [{ level: 40, openFiles: OPEN_FILES, connections: 96, upstreamConnections: 96 }])

    const served = await rawClient(t, sidecar.port)
    served.send(get)
    t.equal((await served.response()).status, 200)
    const busy = await Promise.all(Array.from({ length: 300 }, () => rawClient(t, sidecar.port)))
    for (const client of busy) {
      client.send('GET /object HTTP/1.1\r\n')
    }
    const evicted = () => metric('auth_sidecar_client_connections_evicted_total')
    await eventually(async () => (await evicted()) > 0, 'the limit to be reached')
    // An evicted connection counts until it is closed.
    const open = () => metric('auth_sidecar_client_connections')
    await eventually(async () => (await open()) === 96, 'as many connections as the limit')

    t.equal((await admin('/readyz')).status, 200, 'probes are answered')
    const { publicJwk } = await makeKey('ES256', 'second')
    writeKey(files['keys-directory'], publicJwk)
    await eventually(
      async () => /"second"/.test((await admin('/.well-known/jwks.json')).body.toString()),
      'a new key to be loaded',
    )
    t.equal(await metric('auth_sidecar_open_files_used_up'), 0)
  },
)

t.test(
  'a process without a free file says so, and does not take its keys for changed',
  {
    skip: without('prlimit'),
  },
  async (t) => {
    const { sidecar, get, admin, metric, nextFile } = await setup(t)
    const kept = await rawClient(t, sidecar.port)
    kept.send(get)
    t.equal((await kept.response()).status, 200)
    const page = await rawClient(t, sidecar.adminPort)
    page.send('GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n')
    t.equal((await page.response()).status, 200, 'it is accepted before no file is left')
    const limitFiles = (limit: number) =>
      spawnSync('prlimit', ['--pid', String(sidecar.pid), `--nofile=${limit}:`])
    limitFiles(nextFile())
    const lines = () => sidecar.log().filter(({ msg }) => /^no open file is left/.test(String(msg)))
    await sidecar.until(() => lines().length > 0, 'a line in the log')
    t.match(lines(), [{ level: 50, msg: /new clients are refused/ }])

    page.send('GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n')
    const metrics = (await page.response()).body.toString()
    t.match(metrics, /^auth_sidecar_open_files_used_up 1$/m)
    t.match(metrics, /^auth_sidecar_reload_failing\{subject="keys"\} 0$/m)
    page.send('GET /status.json HTTP/1.1\r\nHost: a\r\n\r\n')
    t.match((await page.response()).body.toString(), /No open file is left/)
    // Polls go on, but without a free file the directory cannot be listed.
    await sleep(SOME_POLLS_MS)
    kept.send(get)
    t.equal((await kept.response()).status, 200)

    limitFiles(OPEN_FILES)
    await eventually(() => succeeds(admin('/readyz')), 'new connections')
    t.equal(await metric('auth_sidecar_reloads_total{subject="keys",result="ok"}'), 0)
    t.equal(await metric('auth_sidecar_reloads_total{subject="keys",result="failed"}'), 0)
    const changes = sidecar.log().filter(({ msg }) => /^new version/.test(String(msg)))
    t.same(changes, [])
  },
)
