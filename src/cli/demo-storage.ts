/**
 * The storage API of `demo`: PUT, GET, HEAD and DELETE of objects in a directory, each account apart.
 * It trusts `X-Authenticated-Account-Id`, as a service behind the sidecar may.
 */
import { hash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, rename, rm, stat } from 'node:fs/promises'
import http, { type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'

/** Listens on a free port. Returns the URL. */
export async function startStorageApi(directory: string, onError: (error: unknown) => void) {
  // No time limit: the sidecar in front limits slow uploads.
  const server = http.createServer({ requestTimeout: 0 }, (req, res) => {
    respond(directory, req, res).catch((error: unknown) => {
      if (req.destroyed && !req.complete) {
        return // the client disconnected
      }
      onError(error)
      res.destroy() // the sidecar then sends an error response
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  return `http://127.0.0.1:${port}`
}

const METHODS = ['GET', 'HEAD', 'PUT', 'DELETE']

async function respond(directory: string, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { method = '', url = '', headersDistinct } = req
  const [account, ...more] = headersDistinct['x-authenticated-account-id'] ?? []
  if (account === undefined || more.length > 0) {
    return send(res, 403, { code: 'NotAuthenticated', message: 'Requests must pass the sidecar.' })
  }
  if (!METHODS.includes(method)) {
    res.setHeader('Allow', METHODS.join(', '))
    return send(res, 405, { code: 'MethodNotAllowed', message: 'The method is not allowed here.' })
  }
  const key = url.replace(/\?.*/, '')
  // A digest has no separators, so no key names a path outside `directory`.
  const path = join(directory, hash('sha256', account, 'hex'), hash('sha256', key, 'hex'))
  if (method === 'PUT') {
    await store(path, req)
    return send(res, 201, { key })
  }
  const found = await stat(path).catch(() => undefined)
  if (found === undefined) {
    return send(res, 404, { code: 'NoSuchObject', message: 'There is no object of this key.' })
  }
  if (method === 'DELETE') {
    await rm(path)
    res.writeHead(204).end()
    return
  }
  res.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': found.size })
  await pipeline(createReadStream(path), res) // Node sends no body after HEAD
}

/** An aborted upload stores nothing. */
async function store(path: string, req: IncomingMessage): Promise<void> {
  const upload = `${path}.${randomUUID()}`
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  try {
    await pipeline(req, createWriteStream(upload, { mode: 0o600 }))
    await rename(upload, path)
  } finally {
    await rm(upload, { force: true })
  }
}

function send(res: ServerResponse, status: number, value: unknown): void {
  res.statusCode = status
  res.setHeader('Content-Type', 'application/json').end(`${JSON.stringify(value)}\n`)
}
