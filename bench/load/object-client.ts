/**
 * Moves large objects through a proxy: `node object-client.ts JSON`, see `ObjectLoad`. One connection, one object after
 * the other, read into one buffer and written from one, so that the client is not what is measured. Prints a
 * `LoadReport`.
 *
 * @module
 */
import { once } from 'node:events'
import { connect } from 'node:net'
import { quantile } from '../lab/statistics.ts'

/** What is moved. */
export interface ObjectLoad {
  readonly port: number
  readonly token: string
  readonly direction: 'down' | 'up'
  /** Bytes of one object. */
  readonly size: number
  /** How many objects. */
  readonly count: number
}

const { port, token, direction, size, count }: ObjectLoad = JSON.parse(process.argv[2] ?? '')
const block = Buffer.alloc(1 << 18, 'x')

let expected = -1
let status = 0
let received = 0
let done: () => void = () => {}

const socket = connect({
  port,
  host: '127.0.0.1',
  noDelay: true,
  onread: {
    buffer: Buffer.alloc(1 << 20),
    callback(length, buffer) {
      let bytes = length
      if (expected < 0) {
        const data = Buffer.from(buffer.buffer, buffer.byteOffset, length)
        const end = data.indexOf('\r\n\r\n') + 4
        const head = data.toString('latin1', 0, end)
        status = Number(head.slice(9, 12))
        expected = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1])
        bytes -= end
      }
      received += bytes
      if (received === expected) done()
      return true
    },
  },
})
socket.on('close', () => {
  if (!finished) process.exit(1)
})

async function moveOne(): Promise<void> {
  expected = -1
  received = 0
  const answered = new Promise<void>((resolve) => {
    done = resolve
  })
  const length = direction === 'up' ? `Content-Length: ${size}\r\n` : ''
  const line = direction === 'up' ? 'PUT /object' : `GET /object?size=${size}`
  socket.write(`${line} HTTP/1.1\r\nHost: storage.example\r\nAuthorization: Bearer ${token}\r\n${length}\r\n`)
  for (let sent = 0; direction === 'up' && sent < size; sent += block.length) {
    const free = socket.write(size - sent < block.length ? block.subarray(0, size - sent) : block)
    if (!free) await once(socket, 'drain')
  }
  await answered
  const complete = direction === 'up' ? expected > 0 : expected === size
  if (status !== 200 || !complete) throw new Error(`answered ${status} with ${expected} bytes`)
}

let finished = false
const began = performance.now()
const times: number[] = []
for (let moved = 0; moved < count; moved++) {
  const from = performance.now()
  await moveOne()
  times.push((performance.now() - from) * 1000)
}
finished = true
const seconds = (performance.now() - began) / 1000
const [p50, p99] = [quantile(times, 0.5), quantile(times, 0.99)]
console.log(
  JSON.stringify({ requests: count, seconds, bytes: count * size, p50, p99, refused: 0, failed: 0 }),
)
socket.destroy()
