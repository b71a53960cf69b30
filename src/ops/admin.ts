/**
 * The admin listener: metrics, health, public keys and the status page, on a port of their own.
 * It serves GET and HEAD only. No page changes anything, and no page is secret.
 */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer, type IncomingHttpHeaders, type RequestListener, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'
import { type SecureContext, TLSSocket } from 'node:tls'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { Logger } from '../base/log.ts'
import type { Config } from '../config/config.ts'
import { JWKS_PATH } from '../http/request-target.ts'
import { ALPN_PROTOCOLS } from '../tls/listener-tls.ts'
import type { AdminRoom, AdminRoute } from './admin-room.ts'
import type { AccountCounts } from './busiest-accounts.ts'
import { EXPOSITION_TYPE, exposition } from './exposition.ts'
import { familyOf, type MetricFamily, type ReadMetrics } from './metrics.ts'
import { Samples } from './samples.ts'
import { areAllMet, type ReadyCondition, type StatusConfig } from './status.ts'
import { statusDocument } from './status-document.ts'

export interface AdminData {
  readonly conditions: () => readonly ReadyCondition[] | Promise<readonly ReadyCondition[]>
  /** A JWK Set (RFC 7517); undefined before a worker has responded. */
  readonly jwks: () => object | undefined | Promise<object | undefined>
  /** Undefined in a sidecar that only verifies. */
  readonly signingKid: () => string | undefined | Promise<string | undefined>
  readonly metrics: ReadMetrics
  readonly accounts: () => AccountCounts | Promise<AccountCounts>
}

const HEADERS = {
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

export type AdminListener = Readonly<{ listen(): Promise<AddressInfo>; close(): Promise<void> }>

export interface AdminListenerOptions {
  readonly config: StatusConfig & Pick<Config, 'admin'>
  readonly adminData: AdminData
  /** Called for each connection. Undefined without TLS. */
  readonly secureContext: (() => SecureContext) | undefined
  readonly log: Pick<Logger, 'error'>
  readonly now: () => number
  readonly rooms?: readonly AdminRoom[]
}

export function createAdminListener(options: AdminListenerOptions) {
  const { config, adminData, secureContext, log, now, rooms = [] } = options
  const onError = (error: unknown) => log.error({ err: error }, 'listener error')
  const metrics: ReadMetrics = async (group) => [
    ...(await adminData.metrics(group)),
    ...rooms.flatMap((room) => room.metrics?.() ?? []).map(familyOf),
  ]
  const samples = new Samples(metrics, now)
  const pages = Object.entries<Render>(pagesOf(config, { ...adminData, metrics }, samples, rooms))
  const renders = new Map(pages.map(([path, render]) => [path, onceAtATime(render, onError)]))
  const routes = new Map<string, AdminRoute>(rooms.flatMap((room) => [...(room.routes ?? [])]))
  const { server, exempt, destroyAll } = createBoundedServer(secureContext, (req, res) => {
    req.resume()
    const { method, url = '' } = req
    if (method !== 'GET' && method !== 'HEAD') {
      res.setHeader('Allow', 'GET, HEAD')
      return sendPage(res, json(405, { code: 'InvalidArgument', message: 'Use GET or HEAD.' }))
    }
    const path = url.split('?', 1)[0] ?? ''
    const route = routes.get(path)
    if (route !== undefined) {
      return route.handle(req, res, () => exempt(res))
    }
    const render = renders.get(path)
    if (render === undefined) {
      return sendPage(res, json(404, { code: 'NotFound', message: 'There is no such page.' }))
    }
    render()
      .then(async (page) => sendPage(res, acceptsGzip(req.headers) ? await compressed(page) : page))
      .catch(onError)
  })
  return {
    async listen() {
      const { host, port } = config.admin
      // A full backlog drops the SYN of a probe, which comes again after 1 s.
      server.listen({ host, port, backlog: 4096 })
      await once(server, 'listening')
      server.on('error', onError)
      samples.start(onError)
      for (const room of rooms) {
        room.start?.()
      }
      return server.address() as AddressInfo
    },
    async close() {
      await Promise.all(rooms.map((room) => room.stop?.()))
      await new Promise<void>((resolve) => {
        samples.stop()
        server.close(() => resolve())
        destroyAll()
      })
    },
  }
}

interface Page {
  readonly status: number
  readonly type: string
  readonly body: Buffer
  readonly encoding?: 'gzip'
}
type Render = () => Promise<Page>

function pagesOf(config: StatusConfig, data: AdminData, samples: Samples, rooms: readonly AdminRoom[]) {
  const file = (type: string, specifier: string): Render => {
    const url = new URL(import.meta.resolve(specifier))
    return async () => ({ status: 200, type: `${type}; charset=utf-8`, body: await readFile(url) })
  }
  return {
    '/livez': async () => json(200, { status: 'alive' }),
    async '/readyz'() {
      const conditions = await data.conditions()
      const isReady = areAllMet(conditions)
      return json(isReady ? 200 : 503, { status: isReady ? 'ready' : 'not ready', checks: conditions })
    },
    async '/metrics'() {
      const body = await exposition([START_TIME, ...(await data.metrics('all'))])
      return { status: 200, type: EXPOSITION_TYPE, body }
    },
    async [JWKS_PATH]() {
      const keys = await data.jwks()
      if (keys === undefined) {
        return json(503, { code: 'ServiceNotReady', message: 'There are no keys yet.' })
      }
      return json(200, keys, 'application/jwk-set+json')
    },
    async '/status.json'() {
      const conditions = await data.conditions()
      const windows = await samples.windows()
      const accounts = await data.accounts()
      return json(200, statusDocument({ config, conditions, windows, rooms, accounts }))
    },
    '/': file('text/html', '../status-page/page.html'),
    '/page.js': file('text/javascript', '../status-page/page.js'),
    '/page.css': file('text/css', '../status-page/page.css'),
    '/uplot.js': file('text/javascript', 'uplot/dist/uPlot.iife.min.js'),
    '/uplot.css': file('text/css', 'uplot/dist/uPlot.min.css'),
  }
}

/** Of this process, which may be the primary of workers. It stands before prom-client's own. */
const START_TIME: MetricFamily = {
  name: 'process_start_time_seconds',
  help: 'Start time of the process since unix epoch in seconds.',
  type: 'gauge',
  aggregator: 'first',
  values: [{ labels: {}, value: Math.round(performance.timeOrigin / 1000) }],
}

/**
 * Renders a page once for all that ask meanwhile.
 * Otherwise 100 clients with 100 pipelined requests each stop traffic for 6 s.
 */
function onceAtATime(render: Render, onError: (error: unknown) => void): Render {
  let pending: Promise<Page> | undefined
  return () => {
    pending ??= render()
      .catch((error: unknown) => {
        onError(error)
        return json(500, { code: 'InternalError', message: 'The page could not be created.' })
      })
      .finally(() => setImmediate(() => (pending = undefined)))
    return pending
  }
}

function json(status: number, value: unknown, type = 'application/json') {
  return { status, type, body: Buffer.from(JSON.stringify(value)) }
}

/** Smaller bodies gain nothing. */
const MIN_COMPRESSED_BYTES = 1024
const compress = promisify(gzip)
/** The pages that are compressed, or being compressed, so that concurrent requests share the work. */
const compressing = new WeakMap<Page, Promise<Buffer>>()

/** RFC 9110, section 12.5.3: a weight of zero means "not acceptable". */
export function acceptsGzip({ 'accept-encoding': accepted = '' }: IncomingHttpHeaders): boolean {
  return String(accepted)
    .toLowerCase()
    .split(',')
    .some((coding) => {
      const [name = '', weight = 'q=1'] = coding.split(';')
      return name.trim() === 'gzip' && Number(weight.trim().replace('q=', '')) > 0
    })
}

async function compressed(page: Page): Promise<Page> {
  if (page.body.length < MIN_COMPRESSED_BYTES) {
    return page
  }
  const pending = compressing.get(page) ?? compress(page.body)
  compressing.set(page, pending)
  return { ...page, body: await pending, encoding: 'gzip' }
}

function sendPage(res: ServerResponse, { status, type, body, encoding }: Page): void {
  if (encoding !== undefined) {
    res.setHeader('Content-Encoding', encoding)
  }
  const ofPage = { 'Content-Type': type, 'Content-Length': body.length, Vary: 'Accept-Encoding' }
  res.writeHead(status, { ...ofPage, ...HEADERS }).end(body)
}

/**
 * Node accepts one connection per turn of the event loop:
 * a probe is read long before its connection is closed.
 */
const MAX_CONNECTIONS = 1024
/** Maximum time for a request to arrive, and for a connection to be silent. */
const TIMEOUT_MS = 10_000

/**
 * Above the limit, closes the least recently used connection, if possible one that awaits no response.
 * Clients that hold connections thus never block a probe. A TCP server passes its sockets to the http server,
 * because an https server has no socket to close before the TLS handshake.
 */
function createBoundedServer(secureContext: (() => SecureContext) | undefined, handle: RequestListener) {
  const connections = new Map<Socket, { awaitedResponses: number }>() // the least recently used first
  const exempted = new Set<Socket>()
  /** The connection neither counts nor times out until the response is closed. */
  const exempt = (res: ServerResponse) => {
    const { socket } = res.req
    const connection = connections.get(socket)
    if (connection === undefined) {
      return
    }
    connections.delete(socket)
    exempted.add(socket)
    socket.setTimeout(0)
    res.once('close', () => {
      if (exempted.delete(socket) && !socket.destroyed) {
        connections.set(socket, connection)
        socket.setTimeout(TIMEOUT_MS)
      }
    })
  }
  const limits = { requestTimeout: TIMEOUT_MS, connectionsCheckingInterval: TIMEOUT_MS / 2 }
  const http = createServer(limits, (req, res) => {
    const { socket } = req
    const connection = connections.get(socket)
    if (connection !== undefined) {
      connections.delete(socket)
      connections.set(socket, connection)
      connection.awaitedResponses++
      res.once('close', () => connection.awaitedResponses--)
    }
    handle(req, res)
  })
  http.timeout = TIMEOUT_MS // closes connections of clients that do not read, or leave a handshake unfinished
  http.maxRequestsPerSocket = 1000

  const server = createTcpServer((tcpSocket) => {
    const tls = secureContext && { secureContext: secureContext(), ALPNProtocols: ALPN_PROTOCOLS }
    const socket = tls ? new TLSSocket(tcpSocket, { isServer: true, ...tls }) : tcpSocket
    if (connections.size >= MAX_CONNECTIONS) {
      const all = [...connections]
      const [oldest] = all.find(([, { awaitedResponses }]) => awaitedResponses === 0) ?? all[0] ?? []
      if (oldest) {
        connections.delete(oldest)
      }
      oldest?.destroy()
    }
    connections.set(socket, { awaitedResponses: 0 })
    socket.once('close', () => {
      connections.delete(socket)
      exempted.delete(socket)
    })
    http.emit('connection', socket)
  })
  // `http` never listens itself. This event starts the timer by which Node looks for late requests.
  server.once('listening', () => http.emit('listening'))
  server.once('close', () => http.close())
  const destroyAll = () => {
    for (const socket of [...connections.keys(), ...exempted]) {
      socket.destroy()
    }
  }
  return { server, exempt, destroyAll }
}
