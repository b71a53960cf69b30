/**
 * `npm run bench:memory`: what transfers cost in memory, and whether their bytes stay the same.
 *
 * A large object goes up and comes back, its SHA-256 compared; then many slow readers hold a large object each, then
 * many uploads stand still because the upstream does not read. Printed is the resident memory of the sidecar
 * before and at its peak.
 *
 *     npm run bench:memory -- [--gigabytes 5] [--clients 200] [--seconds 20]
 *
 * @module
 */
import { createHash } from 'node:crypto'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { openLab } from './lab/lab.ts'
import { freePort, listening } from './lab/ports.ts'
import { residentMegabytes } from './lab/proc.ts'
import { makeTrust } from './lab/trust.ts'
import { patternOf } from './pattern.ts'
import { sidecar } from './peers/sidecar.ts'

const { values } = parseArgs({
  options: {
    gigabytes: { type: 'string', default: '5' },
    clients: { type: 'string', default: '200' },
    seconds: { type: 'string', default: '20' },
  },
})
const size = Number(values.gigabytes) * 2 ** 30
const clients = Number(values.clients)
const seconds = Number(values.seconds)

const lab = openLab()
const trust = makeTrust(lab)
const [upstreamPort, port] = [await freePort(), await freePort()]
lab.run(1, process.execPath, [
  `--import=${import.meta.resolve('ts-blank-space/register')}`,
  join(import.meta.dirname, 'memory-upstream.ts'),
  String(upstreamPort),
])
const settings = { SIDECAR_LIMITS_UPSTREAM_CONNECTIONS: String(clients + 10) }
const proxy = sidecar('ES256', settings).start({ lab, trust, port, upstreamPort })
const authorization = `Bearer ${trust.mint('ES256')}`

try {
  await listening(upstreamPort)
  await listening(port)
  await put(2 ** 20) // the code paths, warm
  await get(2 ** 20)

  const expected = createHash('sha256')
  for await (const chunk of patternOf(size)) expected.update(chunk)
  const digest = expected.digest('hex')
  await phase(`${values.gigabytes} GiB up`, async () => said(await put(size), digest))
  await phase(`${values.gigabytes} GiB down`, async () => said(await get(size), digest))
  await phase(`${clients} readers of 1 KB/s, 1 GiB each, ${seconds} s`, () => hold(slowReader))
  await phase(`${clients} uploads of 1 GiB that stand still, ${seconds} s`, () => hold(stalledUpload))
} finally {
  lab.close()
}

/** Runs one phase and prints what it cost. */
async function phase(name: string, work: () => Promise<string>): Promise<void> {
  const { pid } = proxy
  const before = residentMegabytes(pid)
  let peak = before
  const sampling = setInterval(() => {
    peak = Math.max(peak, residentMegabytes(pid))
  }, 100)
  const outcome = await work()
  clearInterval(sampling)
  const megabytes = (value: number) => value.toFixed(0)
  console.log(
    `${name}: RSS ${megabytes(before)} MB before, ${megabytes(peak)} MB at its peak (+${megabytes(peak - before)}); ${outcome}`,
  )
}

function said(found: string, digest: string): string {
  return found === digest ? 'SHA-256 equal' : `SHA-256 DIFFERS: ${found}`
}

/** Uploads so many bytes; resolves with the digest that the upstream found. */
function put(bytes: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { authorization, 'content-length': bytes }
    const req = request({ port, host: '127.0.0.1', method: 'PUT', path: '/object', headers }, (res) => {
      let text = ''
      res.setEncoding('utf8').on('data', (part: string) => {
        text += part
      })
      res.on('end', () => resolve(text))
    })
    req.on('error', reject)
    patternOf(bytes).pipe(req)
  })
}

/** Downloads so many bytes; resolves with their digest. */
function get(bytes: number): Promise<string> {
  return new Promise((resolve, reject) => {
    request({ port, host: '127.0.0.1', path: `/object?size=${bytes}`, headers: { authorization } }, (res) => {
      const hash = createHash('sha256')
      res.on('data', (chunk: Buffer) => hash.update(chunk)).on('end', () => resolve(hash.digest('hex')))
      res.on('error', reject)
    })
      .on('error', reject)
      .end()
  })
}

/** Opens every client, holds them for the time, and lets them go. */
async function hold(open: () => Socket): Promise<string> {
  const sockets = Array.from({ length: clients }, open)
  await sleep(seconds * 1000)
  const alive = sockets.filter((socket) => !socket.destroyed).length
  for (const socket of sockets) socket.destroy()
  await sleep(1000)
  return `${alive} of ${clients} still transferring at the end`
}

function slowReader(): Socket {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => socket.destroy())
  socket.write(`GET /object?size=${2 ** 30} HTTP/1.1\r\nHost: s\r\nAuthorization: ${authorization}\r\n\r\n`)
  socket.pause()
  const reading = setInterval(() => socket.read(Math.min(1024, socket.readableLength)), 1000)
  socket.on('close', () => clearInterval(reading))
  socket.on('readable', () => {})
  return socket
}

function stalledUpload(): Socket {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => socket.destroy())
  socket.write(
    `PUT /stall HTTP/1.1\r\nHost: s\r\nAuthorization: ${authorization}\r\nContent-Length: ${2 ** 30}\r\n\r\n`,
  )
  patternOf(2 ** 30).pipe(socket)
  return socket
}
