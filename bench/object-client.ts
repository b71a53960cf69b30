/**
 * Moves large objects through a proxy: `node object-client.ts JSON` with `ObjectLoad`; prints
 * an `ObjectReport`. One connection, one object after the other, read into one buffer and written from one.
 */
import { once } from 'node:events'
import { connect } from 'node:net'

export interface ObjectLoad {
  readonly port: number
  readonly token: string
  readonly direction: 'down' | 'up'
  /** Bytes of one object. */
  readonly size: number
  readonly count: number
}

export interface ObjectReport {
  readonly seconds: number
  readonly bytes: number
}

const { port, token, direction, size, count }: ObjectLoad = JSON.parse(process.argv[2] ?? '')
const block = Buffer.alloc(1 << 18, 'x')

let expected = -1
let received = 0
let finished = false
let onAnswer = (): void => {}

const socket = connect({
  port,
  host: '127.0.0.1',
  noDelay: true,
  onread: {
    buffer: Buffer.alloc(1 << 20),
    callback(length, buffer) {
      received += length
      if (expected < 0) {
        const data = Buffer.from(buffer.buffer, buffer.byteOffset, length)
        const end = data.indexOf('\r\n\r\n') + 4
        const head = data.toString('latin1', 0, end)
        expected = head.slice(9, 12) === '200' ? Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1]) : 0
        received -= end
      }
      if (received === expected) {
        onAnswer()
      }
      return true
    },
  },
})
socket.on('error', (error) => console.error(error.message))
socket.on('close', () => {
  if (!finished) {
    process.exit(1)
  }
})

async function moveOne(): Promise<void> {
  expected = -1
  received = 0
  const answered = new Promise<void>((resolve) => {
    onAnswer = resolve
  })
  const length = direction === 'up' ? `Content-Length: ${size}\r\n` : ''
  const line = direction === 'up' ? 'PUT /object' : `GET /object?size=${size}`
  socket.write(`${line} HTTP/1.1\r\nHost: storage.example\r\nAuthorization: Bearer ${token}\r\n${length}\r\n`)
  if (direction === 'up') {
    await sendBody()
  }
  await answered
  if (expected !== (direction === 'up' ? String(size).length : size)) {
    throw new Error('wrong answer')
  }
}

async function sendBody(): Promise<void> {
  let left = size
  while (left > 0) {
    const part = block.subarray(0, left)
    left -= part.length
    if (!socket.write(part)) {
      await once(socket, 'drain')
    }
  }
}

const began = performance.now()
for (let moved = 0; moved < count; moved++) {
  await moveOne()
}
finished = true
const seconds = (performance.now() - began) / 1000
console.log(JSON.stringify({ seconds, bytes: count * size } satisfies ObjectReport))
socket.destroy()
