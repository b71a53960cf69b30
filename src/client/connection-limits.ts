/**
 * The limits of client connections. Above `limits.connections`, the connection that has been idle longest
 * makes room for a new one, or else the oldest TLS handshake. `limits.connectionsPerAddress` bounds those of
 * one IPv4 address or IPv6 /64, but not those of trusted proxies.
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

/** How many idle connections one search through all connections keeps for the next evictions. */
const MAX_IDLE_FOUND = 256

export class ConnectionLimits {
  readonly #limits: Pick<Config['limits'], 'connections' | 'connectionsPerAddress'>
  readonly #openByNetwork = new Map<string, number>()
  /** Found by the last search, the one that has been idle longest at the end. Some may be busy again. */
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

  /**
   * Counts a new connection, and closes another one if there are too many.
   * Returns false if the new one must be closed.
   * @param openCount - the number of all connections, also those in a TLS handshake, which `open` lacks
   */
  tryAccept(tcpSocket: Socket, peer: Peer, open: readonly Connection[], openCount: number): boolean {
    const isBounded = this.#limits.connectionsPerAddress > 0
    const network = isBounded ? clientNetwork(peer.address) : undefined
    if (network !== undefined && this.#isNetworkFull(network, peer)) {
      this.counts.droppedByAddress++
      return false
    }
    if (openCount >= this.#limits.connections && !this.#makeRoom(open)) {
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
    const idle: IdleConnection[] = []
    for (const connection of open) {
      const sinceMonotonicMs = connection.idleSinceMonotonicMs
      if (sinceMonotonicMs !== undefined) {
        idle.push({ connection, sinceMonotonicMs })
      }
    }
    idle.sort((a, b) => b.sinceMonotonicMs - a.sinceMonotonicMs)
    this.#idle = idle.slice(-MAX_IDLE_FOUND)
    return this.#evictNextFound()
  }

  #evictNextFound(): boolean {
    let idle = this.#idle.pop()
    // One that was used after the search stays open.
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
