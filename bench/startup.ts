/**
 * `npm run bench:startup`: how long a start takes, and what an idle sidecar holds in memory.
 *
 * From the start of the process to the first 200 of `/readyz`, several times over; then the resident memory after some
 * seconds without a request.
 *
 *     npm run bench:startup -- [--rounds 11] [--idle 5]
 *
 * @module
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { get } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { median, residentMegabytes } from './measure.ts'
import { freePort, makeTrust, sidecar } from './peers.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '11' }, idle: { type: 'string', default: '5' } },
})

const directory = mkdtempSync(join(tmpdir(), 'bench-startup-'))
makeTrust(directory)
const [port, adminPort] = [await freePort(), await freePort()]

/** Starts a sidecar; resolves with its process and the milliseconds until it was ready. */
async function start(): Promise<[ChildProcess, number]> {
  const started = performance.now()
  const child = spawn(
    process.execPath,
    [sidecar, 'serve', '--keys-directory', 'keys', '--credentials-file', 'credentials.yaml'],
    {
      cwd: directory,
      stdio: ['ignore', 'ignore', 'inherit'],
      env: {
        ...process.env,
        SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9',
        SIDECAR_LISTEN_PORT: String(port),
        SIDECAR_ADMIN_PORT: String(adminPort),
      },
    },
  )
  while (!(await isReady())) await sleep(2)
  return [child, performance.now() - started]
}

function isReady(): Promise<boolean> {
  return new Promise((resolve) => {
    get({ port: adminPort, host: '127.0.0.1', path: '/readyz', agent: false }, (res) => {
      res.resume()
      resolve(res.statusCode === 200)
    }).on('error', () => resolve(false))
  })
}

async function stop(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL')
  await once(child, 'exit')
}

try {
  const times: number[] = []
  for (let round = 0; round < Number(values.rounds); round++) {
    const [child, milliseconds] = await start()
    times.push(milliseconds)
    await stop(child)
  }
  const [child] = await start()
  await sleep(Number(values.idle) * 1000)
  const resident = residentMegabytes(child.pid ?? 0)
  await stop(child)
  const worst = Math.max(...times)
  console.log(
    `ready after ${median(times).toFixed(0)} ms (median of ${times.length}, worst ${worst.toFixed(0)} ms)`,
  )
  console.log(`resident after ${values.idle} s without a request: ${resident.toFixed(0)} MB`)
} finally {
  rmSync(directory, { recursive: true, force: true })
}
