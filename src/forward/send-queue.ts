/**
 * How much of what was written to a socket the other side has not read yet, as far as the kernel knows.
 *
 * Between a slow reader and us lie megabytes of kernel buffers: Node hears nothing for as long as they drain, and a
 * client that reads steadily looks like one that has stopped. Linux tells the length of each socket's queues
 * in `/proc/net/tcp` (proc(5)); two looks at them tell the two apart. Of a peer in this network namespace the bytes
 * that it was sent and has not read count, too: its kernel may not say for a long time that there is room again.
 * Where there is no such file, nothing is known, and the answer says so.
 *
 * @module
 */
import { readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import ipaddr from 'ipaddr.js'

/** Reads one table of sockets; tests pass their own. */
export type ReadTable = (path: string) => Promise<string>

/** Tells how many bytes are on their way out of a socket; undefined where that cannot be known. */
export type SendQueue = (socket: Socket) => Promise<number | undefined>

/** How long one reading of the tables serves everybody who asks, in milliseconds. */
const FRESH_MS = 200

/** What the function works with. */
export interface SendQueueOptions {
  readonly readTable?: ReadTable
  /** A clock that never goes back, in milliseconds. */
  readonly monotonicNow: () => number
}

/** Makes a function that looks up send queues, reading the tables at most once in {@link FRESH_MS}. */
export function createSendQueue({
  readTable = (path) => readFile(path, 'latin1'),
  monotonicNow,
}: SendQueueOptions): SendQueue {
  let readAt = Number.NEGATIVE_INFINITY
  let reading: Promise<ReadonlyMap<string, Queues>> = Promise.resolve(new Map())
  return async ({ localAddress, localPort, remoteAddress, remotePort }) => {
    if (localAddress === undefined || localPort === undefined) return undefined
    if (remoteAddress === undefined || remotePort === undefined) return undefined
    if (monotonicNow() - readAt > FRESH_MS) {
      readAt = monotonicNow()
      reading = readQueues(readTable)
    }
    const queues = await reading
    const own = queues.get(`${localPort} ${hexAddress(remoteAddress)} ${remotePort}`)
    const peers = queues.get(`${remotePort} ${hexAddress(localAddress)} ${localPort}`)
    return own && own.unsent + (peers?.unread ?? 0)
  }
}

/** What waits at one socket. */
interface Queues {
  readonly unsent: number
  readonly unread: number
}

/** The queues of all sockets of this network namespace. */
async function readQueues(readTable: ReadTable): Promise<ReadonlyMap<string, Queues>> {
  const queues = new Map<string, Queues>()
  for (const path of ['/proc/net/tcp', '/proc/net/tcp6']) {
    const table = await readTable(path).catch(() => '')
    for (const line of table.split('\n').slice(1)) {
      // sl, local address:port, remote address:port, state, tx_queue:rx_queue, …
      const [, local = '', remote = '', , lengths = ''] = line.trim().split(/\s+/, 5)
      const [, localPort = ''] = local.split(':')
      const [address = '', remotePort = ''] = remote.split(':')
      const [unsent = '', unread = ''] = lengths.split(':')
      queues.set(`${number(localPort)} ${withoutMapping(address)} ${number(remotePort)}`, {
        unsent: number(unsent),
        unread: number(unread),
      })
    }
  }
  return queues
}

const number = (hex: string) => Number.parseInt(hex, 16)

/** `::ffff:0:0/96` as the tables spell it: one side of a connection may be told as IPv4, the other as mapped IPv6. */
const MAPPED = '0000000000000000FFFF0000'

function withoutMapping(address: string): string {
  return address.startsWith(MAPPED) ? address.slice(MAPPED.length) : address
}

/** An address as the tables spell it: each 32-bit word in the byte order of a little-endian machine. */
function hexAddress(address: string): string {
  const bytes = ipaddr.process(address.replace(/%.*$/, '')).toByteArray()
  let hex = ''
  for (let word = 0; word < bytes.length; word += 4) {
    for (let at = 3; at >= 0; at--) hex += (bytes[word + at] as number).toString(16).padStart(2, '0')
  }
  return hex.toUpperCase()
}
