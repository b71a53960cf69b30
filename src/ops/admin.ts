/**
 * The admin listener: metrics, health, public keys and the status page, on a port of their own.
 * GET and HEAD only; nothing here changes anything, and nothing here is secret.
 */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Config } from '../config/schema.ts'
import { statusPageFiles } from '../status-page/assets.ts'
import { statusProblems } from './problems.ts'
import { type AdminOptions, type AdminSources, createStatusReporter } from './status.ts'

interface Page {
  readonly status: number
  readonly type: string
  readonly body: Buffer
}

const HEADERS = {
  'Cache-Control': 'no-store',
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

/** More than probes, scrapers and people need. */
const MAX_CONNECTIONS = 256
const MAX_REQUESTS_PER_CONNECTION = 100

export function createAdminListener(
  config: Pick<Config, 'admin' | 'upstreams' | 'credentials' | 'cache'>,
  sources: AdminSources,
  options: AdminOptions,
) {
  const { onFault } = options
  const status = createStatusReporter(config, sources, options)
  const pages = new Map<string, () => Promise<Page>>()
  const page = (path: string, render: () => Promise<Page>) =>
    pages.set(
      path,
      sharedWhilePending(() =>
        render().catch((error: Error) => {
          onFault(error)
          return json(500, { code: 'InternalError', message: 'The page could not be created.' })
        }),
      ),
    )
  page('/livez', async () => json(200, { status: 'alive' }))
  page('/readyz', async () => {
    const checks = await sources.ready()
    const ready = checks.every(({ ok }) => ok)
    return json(ready ? 200 : 503, { status: ready ? 'ready' : 'not ready', checks })
  })
  page('/metrics', async () => ({
    status: 200,
    type: sources.exposition.contentType,
    body: Buffer.from(await sources.exposition.metrics()),
  }))
  page('/.well-known/jwks.json', async () => {
    const jwks = await sources.jwks()
    if (jwks === undefined) return json(503, { code: 'ServiceNotReady', message: 'No worker has keys yet.' })
    return json(200, jwks, 'application/jwk-set+json')
  })
  page('/status.json', async () => {
    const report = await status.report()
    return json(200, { problems: statusProblems(report), ...report })
  })
  for (const { path, type, read } of statusPageFiles)
    page(path, async () => ({ status: 200, type, body: await read() }))

  const server = createServer(
    {
      headersTimeout: 5000,
      requestTimeout: 10_000,
      keepAliveTimeout: 5000,
      connectionsCheckingInterval: 500, // how late the first two may act
      noDelay: true,
    },
    (req, res) => {
      req.resume()
      const { method, url = '' } = req
      if (method !== 'GET' && method !== 'HEAD') {
        res.setHeader('Allow', 'GET, HEAD')
        return send(res, json(405, { code: 'InvalidArgument', message: 'Use GET or HEAD.' }))
      }
      const render = pages.get(url.split('?', 1)[0] ?? '')
      if (render === undefined)
        return send(res, json(404, { code: 'NotFound', message: 'There is no such page.' }))
      void render().then((rendered) => send(res, rendered))
    },
  )
  server.timeout = 10_000 // closes connections of clients that do not read
  server.maxConnections = MAX_CONNECTIONS
  server.maxRequestsPerSocket = MAX_REQUESTS_PER_CONNECTION

  return {
    /** Rejects when the address cannot be bound. */
    async listen(): Promise<AddressInfo> {
      server.listen(config.admin.port, config.admin.host)
      await once(server, 'listening')
      server.on('error', onFault)
      status.start()
      return server.address() as AddressInfo
    },
    close: () =>
      new Promise<void>((resolve) => {
        status.stop()
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function json(status: number, value: unknown, type = 'application/json'): Page {
  return { status, type, body: Buffer.from(JSON.stringify(value)) }
}

function send(res: ServerResponse, { status, type, body }: Page): void {
  res.writeHead(status, { 'Content-Type': type, 'Content-Length': body.length, ...HEADERS })
  res.end(body)
}

/**
 * Renders a page once for all requests of the same turn of the event loop, and never twice at a time: pipelined requests
 * cost as much as one.
 */
function sharedWhilePending(render: () => Promise<Page>): () => Promise<Page> {
  let pending: Promise<Page> | undefined
  return () => {
    pending ??= render().finally(() => setImmediate(() => (pending = undefined)))
    return pending
  }
}
