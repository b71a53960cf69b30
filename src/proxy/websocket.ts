/**
 * WebSocket pass-through (RFC 6455). http-proxy's stock pass frames a refusal wrongly and has no timeouts.
 * In: an accepted handshake. Out: the upstream's 101 and then bytes in both directions until a side closes, the token
 * expires or the drain ends; or the upstream's refusal and the end of the connection.
 */
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import type { Socket } from 'node:net'
import { connectionOptions } from '../http/connection-options.ts'
import { HeaderKind, headerKind } from '../http/header-names.ts'
import type { SidecarRequest, SidecarResponse } from '../server/context.ts'
import { allows } from '../token/scopes.ts'
import type { Verdict } from '../token/verify.ts'
import { responseHeaders, responseTrailers } from './response-headers.ts'
import type { TransferOptions } from './transfer.ts'
import type { UpstreamAddress } from './upstream-connection.ts'
import { faultError, faultOf, type UpstreamFault, type UpstreamOutcome } from './upstream-errors.ts'

export interface TunnelOptions extends TransferOptions {
  readonly timeouts: TransferOptions['timeouts'] & {
    readonly upstreamConnectSeconds: number
    readonly idleSeconds: number
  }
  /** Verifies the token of an open tunnel again. */
  readonly recheck: (authorization: string | undefined) => Verdict | Promise<Verdict>
  /** The checks of the tokens of open tunnels. */
  readonly tunnelChecks: Set<() => void>
  readonly now: () => number
}

/** For which a client may read nothing of the last bytes. */
const CLOSE_MS = 5000

/** Idle time before the first probe; libuv gives up after ten more, one second apart. */
const KEEP_ALIVE_MS = 60_000

/** The longest delay of a Node timer, in milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Sends the handshake with Node's client, and pipes the sockets after its 101. `lines`: see `requestHeaderLines`. */
export function openTunnel(
  req: SidecarRequest,
  res: SidecarResponse,
  lines: string,
  address: UpstreamAddress,
  options: TunnelOptions,
): void {
  const { context } = req
  const { pool, timeouts } = options
  let settled = false
  let upstream: ClientRequest | undefined

  const settle = (outcome: UpstreamOutcome) => {
    clearTimeout(timer)
    if (settled) return false
    settled = true
    if (outcome !== 'ok') context.reason = outcome
    options.events.onOutcome(outcome)
    return true
  }
  const fail = (fault: UpstreamFault) => {
    if (!settle(fault)) return
    upstream?.destroy()
    if (res.headersSent) context.connection.abort()
    else options.refuse(req, res, faultError(fault), fault)
  }

  let timer = setTimeout(() => fail('connection_timeout'), timeouts.upstreamConnectSeconds * 1000)
  if (!pool.addTunnel()) {
    fail('connection_limit_reached')
    return
  }
  let isOpen = false
  context.handOver({
    onIdle() {},
    onRelease: () => {
      if (isOpen) return
      settle('client_aborted')
      upstream?.destroy()
      pool.removeTunnel()
    },
  })
  upstream = request({
    createConnection: () => address.open(),
    method: 'GET',
    path: context.admitted?.target ?? '/',
    headers: [...headerList(lines), 'Connection', 'Upgrade', 'Upgrade', 'websocket'],
    setHost: false,
  })
  upstream.once('socket', (socket) => {
    socket.once(address.tls ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer)
      if (!settled)
        timer = setTimeout(() => fail('http_response_timeout'), timeouts.upstreamResponseSeconds * 1000)
    })
  })
  upstream.on('error', (error) => {
    const isParserError = 'code' in error && String(error.code).startsWith('HPE_')
    fail(isParserError ? 'http_protocol_error' : faultOf(error))
  })
  upstream.on('response', (response) => {
    clearTimeout(timer)
    const { statusCode: status = 0 } = response
    options.events.onResponse(status, (performance.now() - context.startedAt) / 1000)
    if (status < 200) {
      fail('http_protocol_error') // a 101 that names no protocol
      return
    }
    const isChunked = response.headers['transfer-encoding'] !== undefined
    const headers = [...clientHeaders(response, context.id, isChunked), 'Connection', 'close']
    const hasEnd = isChunked || 'content-length' in response.headers
    const closeDelimited = !hasEnd && status !== 204 && status !== 304
    response.setTimeout(timeouts.idleSeconds * 1000, () => fail('connection_read_timeout'))
    try {
      res.writeForwardedHead(status, response.statusMessage ?? '', headers, closeDelimited)
    } catch {
      fail('http_protocol_error') // such as a control character, which Node parses but does not write
      return
    }
    response.on('data', (chunk: Buffer) => {
      context.bytesOut += chunk.length
    })
    response.on('error', () => fail('http_response_incomplete'))
    response.once('end', () => {
      if (isChunked) res.addTrailers(responseTrailers(response.rawTrailers, headLines(response)))
      settle('ok')
    })
    response.pipe(res)
  })
  upstream.on('upgrade', (response, socket: Socket, first) => {
    const isWebSocket = response.headers.upgrade?.toLowerCase() === 'websocket'
    if (!isWebSocket || settled || res.headersSent || req.socket.destroyed) {
      socket.destroy()
      fail('http_protocol_error')
      return
    }
    settle('ok')
    options.events.onResponse(101, (performance.now() - context.startedAt) / 1000)
    isOpen = true
    res.statusCode = 101 // written below, but counted by the access log
    context.handOver({
      state: 'tunnel',
      onIdle() {},
      onRelease: () => {
        upstream.destroy()
        pool.removeTunnel()
      },
    })
    pipeTunnel(req, response, socket, first)
    closeWhenRefused(req, options)
  })
  upstream.end()
}

function pipeTunnel(req: SidecarRequest, response: IncomingMessage, upstream: Socket, first: Buffer): void {
  const { context, socket: client } = req
  const headers = clientHeaders(response, context.id, false)
  let head = `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n`
  for (let at = 0; at < headers.length; at += 2) head += `${headers[at]}: ${headers[at + 1]}\r\n`
  client.write(`${head}\r\n`, 'latin1')
  client.write(first)
  const firstBytes = context.upgrade?.firstBytes
  if (firstBytes !== undefined) upstream.write(firstBytes)
  context.bytesIn += firstBytes?.length ?? 0
  context.bytesOut += first.length
  client.setTimeout(0)
  upstream.setTimeout(0)
  context.connection.tcpSocket.setKeepAlive(true, KEEP_ALIVE_MS)
  upstream.setKeepAlive(true, KEEP_ALIVE_MS)
  upstream.on('error', () => client.destroy())
  upstream.on('close', () => {
    client.destroySoon()
    // A write to a TLS socket that its client has reset may never end.
    client.setTimeout(CLOSE_MS, () => client.destroy())
  })
  client.on('close', () => upstream.destroy())
  client.on('data', (chunk: Buffer) => {
    context.bytesIn += chunk.length
  })
  upstream.on('data', (chunk: Buffer) => {
    context.bytesOut += chunk.length
  })
  client.pipe(upstream)
  upstream.pipe(client)
}

/** Checks the token now, whenever auth data changes, and when the verdict ends: it may have been revoked meanwhile. */
function closeWhenRefused({ socket, context, rawHeaders }: SidecarRequest, options: TunnelOptions): void {
  const { decision, admitted } = context
  if (decision?.act !== 'forward' || decision.caller === undefined || admitted === undefined) return
  if (decision.caller.link !== undefined) return // only report mode passes a handshake with a link
  const isReported = decision.wouldRefuse !== undefined
  const { recheck, tunnelChecks, now } = options
  let timer: NodeJS.Timeout | undefined
  const check = async () => {
    const verdict = await Promise.resolve(recheck(admitted.authorization)).catch(() => undefined)
    clearTimeout(timer)
    const scope = verdict?.ok === true && !isReported ? verdict.identity.scope : undefined
    const isAllowed = scope === undefined || allows(scope, admitted, rawHeaders)
    if (verdict?.ok !== true || !isAllowed) socket.destroy()
    if (verdict?.ok !== true || socket.destroyed) return
    timer = setTimeout(check, Math.min(Math.max(verdict.usableUntil - now(), 0), MAX_TIMER_MS))
  }
  tunnelChecks.add(check)
  socket.once('close', () => {
    tunnelChecks.delete(check)
    clearTimeout(timer)
  })
  void check()
}

function headLines({ rawHeaders, headers: { connection } }: IncomingMessage) {
  return {
    rawHeaders,
    kinds: rawHeaders.filter((_, at) => at % 2 === 0).map(headerKind),
    connectionOptions: connection === undefined ? undefined : connectionOptions(undefined, connection),
  }
}

function clientHeaders(response: IncomingMessage, requestId: string, hasTrailers: boolean): string[] {
  const { statusCode: status = 0 } = response
  return responseHeaders({ ...headLines(response), status }, requestId, hasTrailers)
}

/** Header lines as names and values alternating; without `Trailer`, which Node refuses on a request without a body. */
function headerList(lines: string): string[] {
  return lines
    .slice(0, -2)
    .split('\r\n')
    .flatMap((line) => {
      const colon = line.indexOf(':')
      const name = line.slice(0, colon)
      return headerKind(name) === HeaderKind.trailer ? [] : [name, line.slice(colon + 2)]
    })
}
