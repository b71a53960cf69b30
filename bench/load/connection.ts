/**
 * One client connection that sends prepared requests, one at a time.
 *
 * As little work for each as JavaScript allows, because the load shares a core with the upstream: the answer's status
 * and `Content-Length` are looked for, its body is counted. Every answer of the suite's upstreams and peers has a
 * length; one without counts as none.
 *
 * @module
 */
import { connect, type Socket } from 'node:net'

/** An answer that is complete. */
export interface Answer {
  readonly status: number
  /** Bytes of head and body. */
  readonly bytes: number
}

/** A connection, opened again whenever the other side closed it. */
export interface ClientConnection {
  /** Sends a request; not before the last one is answered. `undefined`: the connection failed. */
  ask(request: string, answered: (answer: Answer | undefined) => void): void
  close(): void
}

const END_OF_HEAD = Buffer.from('\r\n\r\n')

/** Opens a connection to a port of the loopback interface. */
export function openConnection(port: number): ClientConnection {
  let socket: Socket | undefined
  let answered: ((answer: Answer | undefined) => void) | undefined
  let partOfHead: Buffer | undefined
  let status = 0
  let bytes = 0
  /** Bytes of the body that are still to come; -1 while the head is read. */
  let left = -1
  let closes = false

  function open(): Socket {
    const opened = connect({ port, host: '127.0.0.1', noDelay: true })
    opened.on('data', received)
    opened.on('error', () => {})
    opened.on('close', () => {
      if (socket !== opened) return
      socket = undefined
      finish(undefined)
    })
    return opened
  }

  function received(chunk: Buffer): void {
    bytes += chunk.length
    if (left < 0) {
      const data = partOfHead === undefined ? chunk : Buffer.concat([partOfHead, chunk])
      const end = data.indexOf(END_OF_HEAD)
      if (end < 0) {
        partOfHead = data
        return
      }
      partOfHead = undefined
      readHead(data.toString('latin1', 0, end))
      left -= data.length - end - END_OF_HEAD.length
    } else {
      left -= chunk.length
    }
    if (left === 0) finish({ status, bytes })
  }

  function readHead(head: string): void {
    status = Number(head.slice(9, 12))
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
    if (length === undefined) socket?.destroy()
    left = Number(length ?? -1)
    closes = /\r\nconnection: *close/i.test(head)
  }

  function finish(answer: Answer | undefined): void {
    if (closes) {
      const closing = socket
      socket = undefined
      closing?.destroy()
    }
    const tell = answered
    answered = undefined
    partOfHead = undefined
    left = -1
    bytes = 0
    closes = false
    tell?.(answer)
  }

  return {
    ask(request, done) {
      answered = done
      socket ??= open()
      socket.write(request, 'latin1')
    },
    close() {
      answered = undefined
      socket?.destroy()
    },
  }
}
