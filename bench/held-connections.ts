/**
 * Sends bytes on many connections and keeps them open, until it is killed:
 * `node held-connections.ts JSON` with `HeldConnections`.
 */
import { connect, type Socket } from 'node:net'

export interface HeldConnections {
  readonly port: number
  readonly count: number
  readonly head: string
  /** What each connection does after the head. */
  readonly then: 'read' | 'read slowly' | 'write' | 'write slowly'
}

const { port, count, head, then }: HeldConnections = JSON.parse(process.argv[2] ?? '')
const block = Buffer.alloc(1 << 16, 'x')

const ACTS: Readonly<Record<HeldConnections['then'], (socket: Socket) => void>> = {
  read: (socket) => socket.resume(),
  /** 1 KB a second. */
  'read slowly': (socket) => {
    socket.on('readable', () => {})
    everySecond(socket, () => socket.read(Math.min(1024, socket.readableLength)))
  },
  write: (socket) => {
    const writeOn = () => {
      while (!socket.destroyed && socket.write(block)) {}
    }
    socket.on('drain', writeOn)
    writeOn()
  },
  'write slowly': (socket) => everySecond(socket, () => socket.write('x')),
}

function everySecond(socket: Socket, act: () => void): void {
  const timer = setInterval(act, 1000)
  socket.on('close', () => clearInterval(timer))
}

for (let opened = 0; opened < count; opened++) {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => socket.destroy())
  socket.write(head)
  ACTS[then](socket)
}
setInterval(() => {}, 1000)
