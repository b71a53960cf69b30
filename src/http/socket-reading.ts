/**
 * Reading a client's socket into memory that serves again.
 *
 * Node's streams take 64 KiB anew for each read, however little comes: a quarter of the cost of a small request, and
 * tens of megabytes on the way of a large upload. Here all connections read into one block, since what comes is looked
 * at before anything else is read. Only a connection on which much of a body comes has blocks of its own, which are read
 * into again when the upstream has what was in them; one whose body drips or stands still has none.
 *
 * @module
 */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net'
import { type ReadBlock, type ReadMemory, WORTH_HOLDING } from '../read-memory.ts'

/** What is read of a socket goes to. */
export interface SocketReader {
  onBytes(chunk: Buffer): void
  /** Whether what comes next is a body that is wanted, and may have to be kept for a moment. */
  readonly receivesBody: boolean
}

/** How a socket is read. */
export interface SocketReading {
  readonly socket: Socket
  /** Whether what is being told lies where the next read of another connection goes: only a copy of it may be kept. */
  readonly isShared: boolean
  /** Keeps what is being told from being read over; returns what to call when it is not needed any more. */
  hold(): () => void
}

const NOTHING_HELD = (): void => {}

/** Reads a socket as Node's streams do; for TLS, of which Node has the bytes in its own memory anyway. */
export function readAsStream(socket: Socket, reader: () => SocketReader): SocketReading {
  socket.on('data', (chunk: Buffer) => reader().onBytes(chunk))
  return { socket, isShared: false, hold: () => NOTHING_HELD }
}

/**
 * Reads a TCP connection that a server has accepted and not begun to read (`pauseOnConnect`).
 *
 * Node takes memory of ours (`onread`) for sockets that are made, not for those that are accepted: the handle moves to
 * a socket that is made for it. Node does the same with handles that come from another process.
 */
export function readDirectly(
  accepted: Socket,
  reader: () => SocketReader,
  shared: ReadBlock,
  memory: ReadMemory,
): SocketReading {
  let own: ReadBlock | undefined
  let lastRead = 0
  const onread: OnReadOpts = {
    buffer: () => {
      const wantsOwn = lastRead >= WORTH_HOLDING && reader().receivesBody
      if (own !== undefined && (own.held || !wantsOwn)) {
        own.release()
        own = undefined
      }
      if (wantsOwn) own ??= memory.take()
      return (own ?? shared).bytes
    },
    callback: (bytes) => {
      lastRead = bytes
      reader().onBytes((own ?? shared).bytes.subarray(0, bytes))
      return true
    },
  }
  const socket = new Socket({
    handle: takeHandle(accepted),
    allowHalfOpen: true,
    onread,
  } as SocketConstructorOpts)
  socket.once('close', () => own?.release())
  return {
    socket,
    get isShared() {
      return own === undefined
    },
    hold: () => own?.hold() ?? NOTHING_HELD,
  }
}

/** The handle is a property that Node calls private; it has been the same since version 0.3. */
function takeHandle(accepted: Socket): unknown {
  const holder = accepted as unknown as { _handle: unknown }
  const handle = holder._handle
  holder._handle = null
  accepted.destroy() // it is no connection of the server any more
  return handle
}
