/**
 * The admin listener: health, metrics, public keys and a status page, on a port of their own.
 *
 * GET and HEAD only; nothing here changes anything, and nothing here is secret. However many ask at a time, a page is
 * made once for all of them: whoever watches must not cost those who are served.
 *
 * @module
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { listenOn } from '../http/listen-on.ts'
import { answerWithin } from './admin-connections.ts'
import { shared } from './shared.ts'
import type { StatusReporter } from './status/report.ts'

/** One condition of readiness. */
export interface ReadyCheck {
  readonly name: string
  readonly ok: boolean
  /** In a word or two, where there is more to say. */
  readonly state?: string
}

/** Metrics as text, such as a registry of prom-client. */
export interface Exposition {
  readonly contentType: string
  metrics(): Promise<string>
}

/** What this process knows, or has to ask others for. */
export type Awaitable<Value> = Value | Promise<Value>

/** What the admin listener shows. */
export interface AdminOptions {
  readonly host: string
  readonly port: number
  /** What `/metrics` says. */
  readonly exposition: Exposition
  /** Every condition of readiness; the sidecar is ready when all of them hold. */
  readonly ready: () => Awaitable<readonly ReadyCheck[]>
  /** The public keys, as a JWK Set (RFC 7517). */
  readonly jwks: () => unknown
  /** What `/` and `/status.json` show; takes its samples while this listens. */
  readonly status: StatusReporter
  /** Told of faults of the listening socket. */
  readonly onFault: (error: Error) => void
}

/** The admin listener. */
export interface AdminListener {
  /** Begins to listen. Rejects when the address cannot be had. */
  listen(): Promise<AddressInfo>
  /** Closes it and its connections. */
  close(): Promise<void>
}

interface Page {
  readonly status: number
  readonly type: string
  /** One for all who are sent the page: those who read slowly cost no memory of their own. */
  readonly body: Buffer
  readonly headers?: Readonly<Record<string, string>>
}

/** Of every answer. Nobody may show these pages inside theirs, nor guess at what they are. */
const HEADERS = {
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
}

const json = (status: number, value: unknown, type = 'application/json'): Page => ({
  status,
  type,
  body: Buffer.from(JSON.stringify(value)),
})

const BOUNDS = { connections: 256, unanswered: 8 }

/** Makes the admin listener. */
export function createAdminListener(options: AdminOptions): AdminListener {
  const make: readonly (readonly [path: string, page: () => Page | Promise<Page>])[] = [
    ['/livez', () => json(200, { status: 'alive' })],
    [
      '/readyz',
      async () => {
        const checks = await options.ready()
        const ready = checks.every(({ ok }) => ok)
        return json(ready ? 200 : 503, { status: ready ? 'ready' : 'not ready', checks })
      },
    ],
    [
      '/metrics',
      async () => ({
        status: 200,
        type: options.exposition.contentType,
        body: Buffer.from(await options.exposition.metrics()),
      }),
    ],
    ['/status.json', async () => json(200, await options.status.report())],
    [
      '/',
      async () => {
        const status = await options.status.report()
        // Loaded when somebody looks: most sidecars are never looked at.
        const { renderPage, HEADERS: headers } = await import('../status-page/page.ts')
        return {
          status: 200,
          type: 'text/html; charset=utf-8',
          body: Buffer.from(renderPage(status)),
          headers,
        }
      },
    ],
    ['/.well-known/jwks.json', async () => json(200, await options.jwks(), 'application/jwk-set+json')],
  ]
  const failed = (error: Error): Page => {
    options.onFault(error)
    return json(500, { message: 'The page could not be made.' })
  }
  const pages = new Map(
    make.map(([path, page]) => [path, shared(() => Promise.resolve().then(page).catch(failed))]),
  )

  const pageFor = async ({ method, url }: IncomingMessage): Promise<Page> => {
    if (method !== 'GET' && method !== 'HEAD') return json(405, { message: 'Use GET or HEAD.' })
    const page = pages.get(String(url).replace(/\?.*/s, ''))
    return page === undefined ? json(404, { message: 'There is no such page.' }) : page()
  }

  const server = createServer({
    headersTimeout: 5000,
    requestTimeout: 10_000,
    keepAliveTimeout: 5000,
    connectionsCheckingInterval: 500, // how late the first two may act
    noDelay: true,
  })
  server.timeout = 10_000 // for whoever takes nothing of an answer
  answerWithin(BOUNDS, server, (req, res) => {
    req.resume()
    pageFor(req).then((page) => send(res, page))
  })

  return {
    async listen() {
      const address = await listenOn(server, options)
      options.status.start()
      return address
    },
    close: () =>
      new Promise((resolve) => {
        options.status.stop()
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function send(res: ServerResponse, { status, type, body, headers }: Page): void {
  res.writeHead(status, {
    'Content-Type': type,
    'Content-Length': body.length,
    ...HEADERS,
    ...headers,
    ...(status === 405 ? { Allow: 'GET, HEAD' } : {}),
  })
  res.end(body)
}
