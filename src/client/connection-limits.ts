/**
 * The limits of client connections. Above `limits.connections`, the connection that has been idle longest
 * makes room for a new one, or the oldest TLS handshake. `limits.connectionsPerAddress` bounds those of one IPv4 address or IPv6 /64,
 * but not those of trusted proxies.
 */
import type { Socket } from 'node:net'
import type { Config } from '../config/config.ts'
import type { TlsSockets } from '../tls/listener-tls.ts'
import { clientNetwork, type Peer } from './client-address.ts'
import type { Connection } from './connection.ts'

interface IdleConnection {
  readonly connection: Connection
  readonly sinceMonotonicMs: number
}

/** One search through all connections finds as many. */
const MAX_FOUND = 256

export class ConnectionLimits {
  readonly #limits: Pick<Config['limits'], 'connections' | 'connectionsPerAddress'>
  readonly #openByNetwork = new Map<string, number>()
  /** The connection that has been idle longest is at the end. Some are not idle any more. */
  #idle: IdleConnection[] = []
  readonly counts = { dropped: 0, droppedByAddress: 0, evicted: 0 }
  readonly #tlsSockets: Pick<TlsSockets, 'destroyOldest'>

  constructor(
    limits: Pick<Config['limits'], 'connections' | 'connectionsPerAddress'>,
    tlsSockets: Pick<TlsSockets, 'destroyOldest'>,
  ) {
    this.#limits = limits
    this.#tlsSockets = tlsSockets
  }

  /** Whether a new connection is accepted. `count`: of all, also those in a TLS handshake. */
  accepts(tcpSocket: Socket, peer: Peer, open: readonly Connection[], count: number): boolean {
    const isBounded = this.#limits.connectionsPerAddress > 0
    const network = isBounded ? clientNetwork(peer.address) : undefined
    if (network !== undefined && this.#isNetworkFull(network, peer)) {
      this.counts.droppedByAddress++
      return false
    }
    if (count >= this.#limits.connections && !this.#makeRoom(open)) {
      this.counts.dropped++
      return false
    }
    if (network !== undefined) {
      this.#countUntilClosed(tcpSocket, network)
    }
    return true
  }

  #isNetworkFull(network: string, peer: Peer): boolean {
    const open = this.#openByNetwork.get(network) ?? 0
    return open >= this.#limits.connectionsPerAddress && !peer.isTrusted
  }

  #countUntilClosed(tcpSocket: Socket, network: string): void {
    this.#openByNetwork.set(network, (this.#openByNetwork.get(network) ?? 0) + 1)
    tcpSocket.once('close', () => {
      const open = (this.#openByNetwork.get(network) ?? 0) - 1
      if (open > 0) {
        this.#openByNetwork.set(network, open)
      } else {
        this.#openByNetwork.delete(network)
      }
    })
  }

  /** Returns false if each connection serves a request or receives a head. */
  #makeRoom(open: readonly Connection[]): boolean {
    const isEvicted = this.#evictIdle(open) || this.#tlsSockets.destroyOldest()
    if (isEvicted) {
      this.counts.evicted++
    }
    return isEvicted
  }

  /** Closes the connection that has been idle longest. Returns false if none is idle. */
  #evictIdle(open: readonly Connection[]): boolean {
    if (this.#evictNextFound()) {
      return true
    }
    const found = open.flatMap((connection) => {
      const sinceMonotonicMs = connection.idleSinceMonotonicMs
      return sinceMonotonicMs === undefined ? [] : { connection, sinceMonotonicMs }
    })
    found.sort((a, b) => b.sinceMonotonicMs - a.sinceMonotonicMs)
    this.#idle = found.slice(-MAX_FOUND)
    return this.#evictNextFound()
  }

  #evictNextFound(): boolean {
    let idle = this.#idle.pop()
    // Those that have become busy since they were found stay open.
    while (idle !== undefined && idle.connection.idleSinceMonotonicMs !== idle.sinceMonotonicMs) {
      idle = this.#idle.pop()
    }
    if (idle === undefined) {
      return false
    }
    idle.connection.evict()
    return true
  }
}
