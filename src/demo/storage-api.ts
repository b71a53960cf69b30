/**
 * A small storage API for the demo: PUT, GET, HEAD and DELETE of objects, and `GET /?prefix=` to list them.
 * It trusts `X-Authenticated-Account-Id`; a request without it did not pass the sidecar and is refused.
 */
import { createHash, hash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream, createWriteStream, mkdirSync, rmSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'

interface Metadata {
  /** The request path as it was sent. */
  readonly key: string
  readonly size: number
  /** SHA-256 of the bytes in hex, in double quotes. */
  readonly etag: string
  readonly contentType: string
}

/** File names are digests of the account and of the key: no key reaches outside `directory`. */
export async function startStorageApi(directory: string, onFault: (fault: unknown) => void) {
  const uploads = join(directory, 'uploads')
  rmSync(uploads, { recursive: true, force: true })
  mkdirSync(uploads, { recursive: true, mode: 0o700 })
  // An upload may take long: the sidecar in front watches its progress.
  const server = createServer({ requestTimeout: 0 }, (req, res) => {
    respond(directory, req, res).catch((fault: unknown) => {
      if (req.destroyed && !req.complete) return // the client disconnected
      onFault(fault)
      if (res.headersSent) res.destroy()
      else sendError(res, 500, 'InternalError', 'The storage API failed. Retry the request.')
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
  const [account, ...more] = req.headersDistinct['x-authenticated-account-id'] ?? []
  if (account === undefined || more.length > 0) {
    const message = 'X-Authenticated-Account-Id is missing: requests pass the sidecar.'
    return sendError(res, 403, 'NotAuthenticated', message)
  }
  const [key = '', query = ''] = String(req.url).split(/\?(.*)/s)
  const objects = join(directory, hash('sha256', account, 'hex'))
  if (key === '/' && req.method === 'GET') {
    const all = await listObjects(objects)
    const prefix = new URLSearchParams(query).get('prefix') ?? ''
    return sendJson(res, 200, { objects: all.filter((object) => object.key.startsWith(prefix)) })
  }
  const path = join(objects, hash('sha256', key, 'hex'))
  const allowed = key === '/' ? ['GET'] : ['GET', 'HEAD', 'PUT', 'DELETE']
  if (key === '/' || !allowed.includes(String(req.method))) {
    res.setHeader('Allow', allowed.join(', '))
    return sendError(res, 405, 'MethodNotAllowed', 'The method is not allowed here.')
  }
  if (req.method === 'PUT') return putObject(path, key, req, res)
  const metadata = await readMetadata(`${path}.json`)
  if (metadata === undefined) return sendError(res, 404, 'NoSuchObject', 'There is no object of this key.')
  if (req.method === 'DELETE') {
    await rm(`${path}.json`)
    await rm(path, { force: true })
    res.writeHead(204).end()
    return
  }
  const { size, etag, contentType } = metadata
  res.writeHead(200, { 'Content-Type': contentType, 'Content-Length': size, ETag: etag })
  if (req.method === 'HEAD') res.end()
  else await pipeline(createReadStream(path), res)
}

/** Stores a complete object, or nothing if the upload is aborted. */
async function putObject(path: string, key: string, req: IncomingMessage, res: ServerResponse) {
  const upload = join(path, '../../uploads', randomUUID())
  const digest = createHash('sha256')
  try {
    req.on('data', (chunk) => digest.update(chunk))
    await pipeline(req, createWriteStream(upload, { flags: 'wx', mode: 0o600 }))
    const { size } = await stat(upload)
    const contentType = req.headers['content-type'] ?? 'application/octet-stream'
    const metadata: Metadata = { key, size, etag: `"${digest.digest('hex')}"`, contentType }
    await mkdir(join(path, '..'), { recursive: true, mode: 0o700 })
    await rename(upload, path)
    await writeFile(`${path}.json`, JSON.stringify(metadata), { mode: 0o600 })
    res.setHeader('ETag', metadata.etag)
    sendJson(res, 201, metadata)
  } finally {
    await rm(upload, { force: true })
  }
}

async function listObjects(objects: string): Promise<Metadata[]> {
  const names = (await ifPresent(readdir(objects))) ?? []
  const files = names.filter((name) => name.endsWith('.json'))
  const read = await Promise.all(files.map((name) => readMetadata(join(objects, name))))
  const found = read.filter((metadata) => metadata !== undefined)
  return found.sort((a, b) => (a.key < b.key ? -1 : 1))
}

async function readMetadata(file: string): Promise<Metadata | undefined> {
  const json = await ifPresent(readFile(file, 'utf8'))
  return json === undefined ? undefined : JSON.parse(json)
}

function ifPresent<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((fault: NodeJS.ErrnoException) => {
    if (fault.code !== 'ENOENT') throw fault
    return undefined
  })
}

function sendError(res: ServerResponse, status: number, code: string, message: string): void {
  sendJson(res, status, { code, message })
}

function sendJson(res: ServerResponse, status: number, value: unknown): void {
  res.statusCode = status
  res.setHeader('Content-Type', 'application/json').end(`${JSON.stringify(value)}\n`)
}
