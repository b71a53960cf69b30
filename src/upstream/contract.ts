/**
 * The contract of this folder:
 * an HTTP/1.1 client (RFC 9112) that knows nothing of tokens, decisions and settings files.
 * A caller gives `UpstreamPool` (`pool.ts`) a request that implements `UpstreamRequest`, and is called back.
 *
 * The state machine of a connection. Each line: the event, the next phase, and the call to the receiver.
 *
 *   lookup        addresses are found            > connecting
 *                 the lookup fails               > closed        onFailure: by the code of the error
 *                 no addresses in time           > closed        onFailure: dns_error
 *   connecting    TCP, then TLS are ready        > established   takeHead, onReadyForBody (4)
 *                 every address fails, or TLS    > closed        onFailure: by the code of the error
 *                 not ready in time              > closed        onFailure: connection_timeout
 *   established   bytes of the response          > receiving     onRead
 *   and reused    the upstream closes            > closed        onFailure: connection_terminated (1)
 *                 no head in time (2)            > closed        onFailure: http_response_timeout
 *   receiving     more bytes                     > receiving     onRead
 *                 the last byte (3)              > idle          onRead: isDone
 *                 the last byte, else            > closed        onRead: isDone
 *                 the receiver calls `handOver`  > tunnel
 *                 the upstream closes            > closed        onFailure: http_response_incomplete (5)
 *                 no byte in time (2)            > closed        onFailure: http_response_timeout (6)
 *   idle          the pool sends a request       > reused        takeHead, onReadyForBody (4)
 *                 bytes, the upstream closes,    > closed        nothing
 *                 or it was idle or open too long
 *   tunnel        bytes                          > tunnel        onRead
 *                 the upstream closes            > closed        onRead: isDone, after a clean end
 *   any phase     the caller calls `close`       > closed        nothing
 *                 bytes that are not HTTP        > closed        onRead, then onFailure: http_protocol_error
 *                 the receiver throws            > closed        onInternalError
 *
 *   (1) stale if reused. Or a TLS failure: an upstream with TLS 1.3 refuses a client certificate only after
 *       the handshake
 *   (2) only once the request is written. While the upstream takes no more of it, the limit is that of
 *       `connection_write_timeout`
 *   (3) if the connection can serve another request: the request is written, nothing follows the response,
 *       and neither the head nor `upstreamMaxAgeSeconds` forbids it
 *   (4) if there is a body
 *   (5) unless the close ends the body: onRead: isDone
 *   (6) before the end of the head. After it: connection_read_timeout
 *
 * `waits.ts` has the limit of each wait. `test/upstream/connection-states.test.ts` drives
 * a connection through random events, and compares it with this table.
 */
import type { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import type { ForwardingFailure } from '../base/errors.ts'
import type { PartialResponse } from './response-parser.ts'

export interface UpstreamSettings {
  readonly limits: {
    readonly headerBytes: number
    readonly headerLines: number
    readonly upstreamConnections: number
    readonly upstreamQueue: number
    /** The part of both that one account may use: above 0 to 1. */
    readonly accountShare: number
  }
  readonly timeouts: {
    readonly idleSeconds: number
    readonly upstreamConnectSeconds: number
    /** An older connection is not reused, so that a changed DNS answer is followed. */
    readonly upstreamMaxAgeSeconds: number
    readonly upstreamResponseSeconds: number
  }
}

export type ConnectionPhase =
  | 'lookup'
  | 'connecting'
  | 'established'
  | 'reused'
  | 'receiving'
  | 'idle'
  | 'tunnel'
  | 'closed'

/** What a receiver may do with the connection that serves it. */
export interface ServingConnection {
  /**
   * Writes a part of the request body, and frees its memory.
   * `isLast`: nothing follows. False: wait for `onWritable`.
   */
  writeBody(pieces: readonly (string | Buffer)[], isLast: boolean): boolean
  /** Stops reading until `client` emits `drain`. */
  pauseUntilDrain(client: Writable): void
  /** Stops reading until it is called with false. The waits for the upstream have no limit meanwhile. */
  setPaced(isPaced: boolean): void
  /** From now on, the tunnel receives all bytes, and writes to the socket. */
  handOver(tunnel: ResponseReceiver): Socket
  /** Closes the connection, and reports nothing to the receiver. */
  close(): void
}

/**
 * Receives what a connection reads: a request or, after a 101, its tunnel. The calls, in their order:
 *
 *   onReadyForBody                        once, for a request with a body
 *   onRead, onWritable, onTick            any number of them
 *   onFailure or onInternalError          at most one of them, as the last call by this connection
 */
export interface ResponseReceiver {
  /** The upstream accepts more bytes (`drain` of its socket). */
  onWritable?(): void
  /** Called with each `tick`. */
  onTick?(): void
  /**
   * Called after each read, also before the failure that the read may cause.
   * May throw. Must take the body: `response` is valid until `onRead` returns.
   * It may call `close`, `pauseUntilDrain`, `setPaced` and `handOver`.
   */
  onRead(response: PartialResponse, connection: ServingConnection): void
  /** `isStale`: most likely, the upstream had closed the connection before the request was written. */
  onFailure?(failure: ForwardingFailure, cause?: string, isStale?: boolean): void
  /** `onRead` or `onReadyForBody` has thrown. The connection is closed. */
  onInternalError(error: unknown): void
}

/** A request, as the pool and the connection see it. */
export interface UpstreamRequest extends Required<ResponseReceiver> {
  /** Returns the head, which the connection then writes. May call `setPaced`. May throw. */
  takeHead(connection: ServingConnection): string
  /** Requests of one account share a part of the connections. Requests without one share a part, too. */
  readonly account: string | undefined
  /** When the request joined the pool's queue. */
  readonly queuedMonotonicMs: number
  readonly isHeadRequest: boolean
  readonly isWebSocket: boolean
  readonly hasBody: boolean
  /** The head of the request is written. May throw. */
  onReadyForBody(connection: ServingConnection): void
}
