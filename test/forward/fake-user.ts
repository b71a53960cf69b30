/**
 * Somebody who uses upstream connections and notes what he is told.
 *
 * @module
 */
import { connect } from 'node:net'
import type { ResponseHead } from '../../src/forward/response-parser.ts'
import type { Connect } from '../../src/forward/upstream-address.ts'
import type { ConnectionUser, UpstreamConnection } from '../../src/forward/upstream-connection.ts'
import type { UpstreamFault } from '../../src/forward/upstream-fault.ts'
import { eventually } from '../support/eventually.ts'

/** Connects to a port of this machine. */
export function connectTo(port: number): Connect {
  return (onread) => connect({ port, host: '127.0.0.1', ...(onread === undefined ? {} : { onread }) })
}

/** A user. What it is told is noted as words: `connected`, `head 200`, `body ok`, `end`, `fault … stale`. */
export class FakeUser implements ConnectionUser {
  readonly requestHead: string
  readonly isHead = false
  readonly told: string[] = []
  connection: UpstreamConnection | undefined
  /** Pauses the connection at the first bytes of the body. */
  readonly pauses: boolean

  constructor(target = '/', { pauses = false } = {}) {
    this.requestHead = `GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`
    this.pauses = pauses
  }

  onConnection(connection: UpstreamConnection): void {
    this.connection = connection
    this.told.push('connected')
  }

  onInformational({ status }: ResponseHead): void {
    this.told.push(`informational ${status}`)
  }

  onHead({ status }: ResponseHead): void {
    this.told.push(`head ${status}`)
  }

  onBody(chunk: Buffer): void {
    this.told.push(`body ${chunk}`)
    if (this.pauses) this.connection?.socket.pause()
  }

  onRead(): void {
    this.told.push('read')
  }

  onEnd(): void {
    this.told.push('end')
  }

  onDrain(): void {
    this.told.push('drain')
  }

  onFault(fault: UpstreamFault, stale: boolean): void {
    this.told.push(`fault ${fault}${stale ? ' stale' : ''}`)
  }

  /** Waits until it has been told something. */
  async hears(word: string): Promise<void> {
    await eventually(
      () => this.told.includes(word),
      `"${word}" among ${JSON.stringify(this.told.slice(-10))}`,
    )
  }
}
