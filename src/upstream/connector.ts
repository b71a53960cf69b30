/**
 * Connects to an upstream: looks its name up, and tries its addresses (RFC 8305, Happy Eyeballs).
 * The next address is tried when an attempt has failed, or has taken a while: then both go on,
 * and the first that connects is used. Node's own way ends each attempt but the last after that while,
 * and so gives a slow good address up. The caller has the deadline, and calls `close`.
 */
import type { LookupAddress } from 'node:dns'
import type { OnReadOpts, Socket } from 'node:net'
import { lookupAddresses } from '../http/hosts.ts'
import type { UpstreamAddress } from './address.ts'

/** RFC 8305, section 5: the time before the next address is tried beside the first. */
const ATTEMPT_DELAY_MS = 250

export interface ConnectorCallbacks {
  /** The addresses are known. Never called for an upstream without a name. */
  onAddresses(): void
  /** TCP is connected. A TLS socket has yet to emit `secureConnect`. */
  onConnected(socket: Socket): void
  /** The lookup has failed, or every address. */
  onFailure(error: Error): void
}

export class Connector {
  readonly #address: UpstreamAddress
  readonly #onread: OnReadOpts
  readonly #callbacks: ConnectorCallbacks
  readonly #attempts = new Set<Socket>()
  /** Undefined in the list: the address of an upstream without a name. */
  #untried: (string | undefined)[] = []
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  constructor(address: UpstreamAddress, onread: OnReadOpts, callbacks: ConnectorCallbacks) {
    this.#address = address
    this.#onread = onread
    this.#callbacks = callbacks
  }

  start(): void {
    const { name } = this.#address
    if (name === undefined) {
      this.#untried = [undefined]
      this.#tryNext()
      return
    }
    lookupAddresses(name).then(
      (addresses) => this.#onAddresses(addresses),
      (error: Error) => this.#fail(error),
    )
  }

  /** Ends all attempts, and calls back no more. */
  close(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    for (const socket of this.#attempts) {
      socket.destroy()
    }
    this.#attempts.clear()
  }

  #onAddresses(addresses: readonly LookupAddress[]): void {
    if (this.#isOver) {
      return
    }
    this.#untried = alternating(addresses)
    this.#callbacks.onAddresses()
    this.#tryNext()
  }

  #tryNext(): void {
    clearTimeout(this.#timer)
    const socket = this.#address.open(this.#untried.shift(), this.#onread)
    this.#attempts.add(socket)
    socket.once('connect', () => this.#onConnected(socket))
    socket.on('error', (error) => this.#onAttemptFailed(socket, error))
    if (this.#untried.length > 0) {
      this.#timer = setTimeout(() => this.#tryNext(), ATTEMPT_DELAY_MS)
    }
  }

  #onConnected(socket: Socket): void {
    if (this.#isOver) {
      return
    }
    this.#attempts.delete(socket)
    this.close()
    this.#callbacks.onConnected(socket)
  }

  #onAttemptFailed(socket: Socket, error: Error): void {
    if (this.#isOver) {
      return
    }
    this.#attempts.delete(socket)
    if (this.#untried.length > 0) {
      this.#tryNext()
    } else if (this.#attempts.size === 0) {
      this.#fail(error)
    }
  }

  #fail(error: Error): void {
    if (this.#isOver) {
      return
    }
    this.close()
    this.#callbacks.onFailure(error)
  }
}

/**
 * The families alternate, as far as there are addresses of both (RFC 8305, section 4).
 * The first stays the first.
 */
function alternating(addresses: readonly LookupAddress[]): string[] {
  const firstFamily = addresses[0]?.family
  const preferred = addresses.filter(({ family }) => family === firstFamily)
  const others = addresses.filter(({ family }) => family !== firstFamily)
  const ordered: string[] = []
  for (const [at, { address }] of preferred.entries()) {
    const other = others[at]
    ordered.push(address)
    if (other !== undefined) {
      ordered.push(other.address)
    }
  }
  const rest = others.slice(preferred.length)
  return [...ordered, ...rest.map(({ address }) => address)]
}
