/** The scenarios of large objects: how fast they move, and what they hold in memory. */
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/support/free-port.ts'
import { type Bench, compare, type Row, type Section } from './compare.ts'
import { listening, withPeakMemory } from './lab.ts'
import { uploadText, writeRequests } from './load.ts'
import type { ObjectLoad, ObjectReport } from './object-client.ts'
import { envoy, haproxy, nginx, sidecar, startObjectUpstream } from './peers.ts'
import { entrant } from './requests.ts'

const KIB = 2 ** 10
const MIB = 2 ** 20
const GIB = 2 ** 30
const SIZES = { '10 MiB': { size: 10 * MIB, count: 60 }, '1 GiB': { size: GIB, count: 1 } }
const DIRECTIONS = ['down', 'up'] as const

/** One object after the other on one connection. */
export async function objects(bench: Bench): Promise<Section> {
  const { lab, trust, quick } = bench
  const upstreamPort = await startObjectUpstream(lab)
  const rows: Row[] = []
  for (const [name, { size, count }] of Object.entries(SIZES)) {
    if (quick && count === 1) {
      continue
    }
    for (const direction of DIRECTIONS) {
      const move = { token: trust.mint(), direction, size, count: quick ? 20 : count }
      const entrants = [sidecar, nginx, haproxy, envoy].map((peer) => ({
        peer,
        label: `${name} ${direction}, ${peer.name}`,
        async load(port: number) {
          const options = { ...move, port } satisfies ObjectLoad
          const { seconds, bytes } = (await lab.ask('object-client.ts', options)) as ObjectReport
          return (cpu: number) => ({ 'MB/s': bytes / 1e6 / seconds, 'CPU ms/GB': (cpu * 1e6) / bytes })
        },
      }))
      rows.push(...(await compare(bench, entrants, { upstreamPort })))
    }
  }
  return { title: 'Large objects', rows }
}

/** CPU time of uploads beside that of peers: by a MiB where the bytes cost more than the request. */
export async function uploads(bench: Bench): Promise<Section> {
  // The small upstream responds before it has read a body, which costs the connection.
  const upstreamPort = await startObjectUpstream(bench.lab)
  const rows = [
    ...(await smallUploads(bench, upstreamPort, '1 KiB', KIB)),
    ...(await smallUploads(bench, upstreamPort, '64 KiB', 64 * KIB)),
    ...(await largeUploads(bench, upstreamPort)),
  ]
  return { title: 'Uploads', rows }
}

const UPLOADING_PEERS = [sidecar, nginx, envoy]

/** On 50 kept-alive connections. */
async function smallUploads(bench: Bench, upstreamPort: number, size: string, bytes: number) {
  const requests = writeRequests(bench.lab, [uploadText(bench.trust.mint(), bytes)])
  const entrants = UPLOADING_PEERS.map((peer) =>
    entrant(bench, peer, { requests }, `${size} up, ${peer.name}`),
  )
  const rows = await compare(bench, entrants, { upstreamPort })
  return rows.map(({ name, figures }) => {
    const cpuMs = (figures['CPU µs'] ?? Number.NaN) / 1000
    return { name, figures: { ...figures, 'CPU ms/MiB': cpuMs * (MIB / bytes) } }
  })
}

/** One object after the other on one connection. */
async function largeUploads(bench: Bench, upstreamPort: number) {
  const move = {
    token: bench.trust.mint(),
    direction: 'up',
    size: 100 * MIB,
    count: bench.quick ? 2 : 15,
  } as const
  const entrants = UPLOADING_PEERS.map((peer) => ({
    peer,
    label: `100 MiB up, ${peer.name}`,
    async load(port: number) {
      const options = { ...move, port } satisfies ObjectLoad
      const { bytes } = (await bench.lab.ask('object-client.ts', options)) as ObjectReport
      return (cpu: number) => ({ 'CPU ms/MiB': cpu / 1000 / (bytes / MIB) })
    },
  }))
  return await compare(bench, entrants, { upstreamPort })
}

/** Resident memory of the sidecar under transfers. */
export async function memory(bench: Bench): Promise<Section> {
  const { lab, trust, quick } = bench
  const gigabytes = quick ? 1 : 10
  const upstreamPort = await startObjectUpstream(lab)
  const clients = 200
  const seconds = quick ? 5 : 20
  const rows: Row[] = []
  const token = trust.mint()

  const move = (port: number, direction: 'down' | 'up', size: number, count: number) =>
    lab.ask('object-client.ts', { port, token, direction, size, count } satisfies ObjectLoad)

  /**
   * Runs one phase with a sidecar of its own; `work` resolves with the number of transfers that are alive.
   */
  async function phase(name: string, work: (port: number) => Promise<number>): Promise<void> {
    const port = await freePort()
    const running = await sidecar.start({ ...bench, port, upstreamPort })
    try {
      await listening(port)
      for (const direction of DIRECTIONS) {
        await move(port, direction, MIB, 20)
      }
      const { result: transfers, memory } = await withPeakMemory(running, () => work(port))
      rows.push({ name, figures: { ...memory, transfers } })
    } finally {
      await running.stop()
    }
  }

  async function hold(open: () => Socket): Promise<number> {
    const sockets = Array.from({ length: clients }, open)
    await sleep(seconds * 1000)
    const alive = sockets.filter((socket) => !socket.destroyed).length
    for (const socket of sockets) {
      socket.destroy()
    }
    return alive
  }

  for (const direction of DIRECTIONS) {
    await phase(`${gigabytes} GiB ${direction}`, async (port) => {
      await move(port, direction, gigabytes * GIB, 1)
      return 1
    })
  }
  await phase(`${clients} slow readers`, (port) => hold(() => slowReader(port, token)))
  await phase(`${clients} stalled uploads`, (port) => hold(() => stalledUpload(port, token)))
  return { title: 'Memory of transfers', rows }
}

/** Reads 1 KB a second of a 1 GiB object. */
function slowReader(port: number, token: string): Socket {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => socket.destroy())
  socket.on('readable', () => {})
  const reading = setInterval(() => socket.read(Math.min(1024, socket.readableLength)), 1000)
  socket.on('close', () => clearInterval(reading))
  socket.write(`GET /object?size=${GIB} HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer ${token}\r\n\r\n`)
  return socket
}

/** Uploads a 1 GiB object to an upstream that does not read. */
function stalledUpload(port: number, token: string): Socket {
  const socket = connect(port, '127.0.0.1')
  const block = Buffer.alloc(1 << 16, 'x')
  const write = () => {
    while (!socket.destroyed && socket.write(block)) {}
  }
  socket.on('error', () => socket.destroy())
  socket.on('drain', write)
  socket.write(
    `PUT /stall HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${GIB}\r\n\r\n`,
  )
  write()
  return socket
}
