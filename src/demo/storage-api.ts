/**
 * A small storage API for the demo: PUT, GET, HEAD and DELETE of objects.
 * It trusts `X-Authenticated-Account-Id`; a request without it did not pass the sidecar and is refused.
 */
import { hash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, rename, rm, stat } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'

const METHODS = ['GET', 'HEAD', 'PUT', 'DELETE']

export async function startStorageApi(directory: string, onFault: (fault: unknown) => void) {
  // An upload may take long: the sidecar in front watches its progress.
  const server = createServer({ requestTimeout: 0 }, (req, res) => {
    respond(directory, req, res).catch((fault: unknown) => {
      if (req.destroyed && !req.complete) return // the client disconnected
      onFault(fault)
      if (res.headersSent) res.destroy()
      else send(res, 500, { code: 'InternalError', message: 'The storage API failed. Retry the request.' })
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function respond(directory: string, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { method = '', url = '', headersDistinct } = req
  const [account, ...more] = headersDistinct['x-authenticated-account-id'] ?? []
  if (account === undefined || more.length > 0) {
    const message = 'X-Authenticated-Account-Id is missing: requests pass the sidecar.'
    return send(res, 403, { code: 'NotAuthenticated', message })
  }
  if (!METHODS.includes(method)) {
    res.setHeader('Allow', METHODS.join(', '))
    return send(res, 405, { code: 'MethodNotAllowed', message: 'The method is not allowed here.' })
  }
  const key = url.replace(/\?.*/, '')
  // Digests of the account and of the key: no key reaches outside `directory`.
  const path = join(directory, hash('sha256', account, 'hex'), hash('sha256', key, 'hex'))
  if (method === 'PUT') {
    await store(path, req)
    return send(res, 201, { key })
  }
  const found = await stat(path).catch(() => undefined)
  if (found === undefined)
    return send(res, 404, { code: 'NoSuchObject', message: 'There is no object of this key.' })
  if (method === 'DELETE') {
    await rm(path)
    res.writeHead(204).end()
    return
  }
  res.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': found.size })
  if (method === 'HEAD') res.end()
  else await pipeline(createReadStream(path), res)
}

/** Stores a complete object, or nothing if the upload is aborted. */
async function store(path: string, req: IncomingMessage): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const upload = `${path}.${randomUUID()}`
  try {
    await pipeline(req, createWriteStream(upload, { flags: 'wx', mode: 0o600 }))
    await rename(upload, path)
  } finally {
    await rm(upload, { force: true })
  }
}

function send(res: ServerResponse, status: number, value: unknown): void {
  res.statusCode = status
  res.setHeader('Content-Type', 'application/json').end(`${JSON.stringify(value)}\n`)
}
