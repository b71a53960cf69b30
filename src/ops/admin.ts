/**
 * The admin listener: metrics, health, public keys and the status page, on a port of their own.
 * It serves GET and HEAD only. No page changes anything, and no page is secret.
 */
import { readFile } from 'node:fs/promises'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { SecureContext } from 'node:tls'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { Logger } from '../base/log.ts'
import type { Config } from '../config/config.ts'
import { JWKS_PATH } from '../http/request-target.ts'
import type { AdminRoom, AdminRoute } from './admin-room.ts'
import { BoundedServer } from './bounded-server.ts'
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

export function createAdminListener(options: AdminListenerOptions): AdminListener {
  const { config, adminData, secureContext, log, now, rooms = [] } = options
  const onError = (error: unknown) => log.error({ err: error }, 'listener error')
  const metrics: ReadMetrics = async (group) => [
    ...(await adminData.metrics(group)),
    ...rooms.flatMap((room) => room.metrics?.() ?? []).map(familyOf),
  ]
  const samples = new Samples(metrics, now)
  const pages = new Map<string, Render>()
  for (const [path, render] of Object.entries(pagesOf(config, { ...adminData, metrics }, samples, rooms))) {
    pages.set(path, onceAtATime(render, onError))
  }
  const routes = routesOf(rooms)
  const server = new BoundedServer(secureContext, (req, res) => {
    req.resume()
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      res.setHeader('Allow', 'GET, HEAD')
      sendPage(res, json(405, { code: 'InvalidArgument', message: 'Use GET or HEAD.' }))
      return
    }
    const [path = ''] = (req.url ?? '').split('?', 1)
    const route = routes.get(path)
    const render = pages.get(path)
    if (route !== undefined) {
      route.handle(req, res, () => server.exempt(res))
    } else if (render !== undefined) {
      respond(req, res, render).catch(onError)
    } else {
      sendPage(res, json(404, { code: 'NotFound', message: 'There is no such page.' }))
    }
  })
  return {
    async listen() {
      const { host, port } = config.admin
      const address = await server.listen(host, port, onError)
      samples.start(onError)
      for (const room of rooms) {
        room.start?.()
      }
      return address
    },
    async close() {
      await Promise.all(rooms.map((room) => room.stop?.()))
      samples.stop()
      await server.close()
    },
  }
}

function routesOf(rooms: readonly AdminRoom[]): ReadonlyMap<string, AdminRoute> {
  const routes = new Map<string, AdminRoute>()
  for (const room of rooms) {
    for (const [path, route] of room.routes ?? []) {
      routes.set(path, route)
    }
  }
  return routes
}

interface Page {
  readonly status: number
  readonly type: string
  readonly body: Buffer
  readonly encoding?: 'gzip'
}
type Render = () => Promise<Page>

function pagesOf(
  config: StatusConfig,
  data: AdminData,
  samples: Samples,
  rooms: readonly AdminRoom[],
): Readonly<Record<string, Render>> {
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
  const forget = () => {
    pending = undefined
  }
  return () => {
    pending ??= render()
      .catch((error: unknown) => {
        onError(error)
        return json(500, { code: 'InternalError', message: 'The page could not be created.' })
      })
      .finally(() => setImmediate(forget)) // requests that this turn still reads share the page
    return pending
  }
}

function json(status: number, value: unknown, type = 'application/json'): Page {
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

async function respond(req: IncomingMessage, res: ServerResponse, render: Render): Promise<void> {
  const page = await render()
  sendPage(res, acceptsGzip(req.headers) ? await compressed(page) : page)
}

const COMMON_HEADERS = {
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

function sendPage(res: ServerResponse, { status, type, body, encoding }: Page): void {
  if (encoding !== undefined) {
    res.setHeader('Content-Encoding', encoding)
  }
  res.writeHead(status, {
    'Content-Type': type,
    'Content-Length': body.length,
    Vary: 'Accept-Encoding',
    ...COMMON_HEADERS,
  })
  res.end(body)
}
