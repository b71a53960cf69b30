/**
 * A small storage API for the demo: what a storage service looks like behind the sidecar.
 *
 * In: requests that the sidecar has authenticated. Out: objects of the account named in
 * `X-Authenticated-Account-Id`, which is trusted as it stands; a request without it did not come through the
 * sidecar and is refused.
 *
 *     PUT, GET, HEAD, DELETE /any/key   one object; the key is the path as sent, byte for byte
 *     GET /?prefix=/any                 the account's objects, as JSON
 *
 * GET takes one range, and GET and HEAD take `If-None-Match`. Errors are JSON `{code, message}`.
 *
 * @module
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { byteRange } from './byte-range.ts'
import { createObjectFiles, type ObjectFiles, type ObjectMetadata } from './object-files.ts'

/** What the storage API needs. */
export interface ObjectStoreOptions {
  /** Where objects are kept; made when missing, mode 0700. */
  readonly directory: string
  /** The clock, in epoch milliseconds; the system's without it. */
  readonly now?: () => number
  /** Told of every fault behind a 500. */
  readonly onFault?: (fault: unknown) => void
}

/** The storage API as a request handler. */
export interface ObjectStore {
  /** Answers one request; never throws. */
  handle(request: IncomingMessage, response: ServerResponse): void
}

/** One request, taken apart. */
interface Call {
  readonly account: string
  readonly key: string
  readonly query: URLSearchParams
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/** Makes the storage API on a directory. Throws when the directory cannot be made. */
export function createObjectStore(options: ObjectStoreOptions): ObjectStore {
  const { directory, now = Date.now, onFault = () => {} } = options
  const files = createObjectFiles({ directory, now })
  return {
    handle(request, response) {
      answer(files, request, response).catch((fault: unknown) => {
        if (clientLeft(fault)) return // there is nobody to tell, and nothing went wrong here
        onFault(fault)
        if (response.headersSent) response.destroy()
        else refuse(response, 500, 'InternalError', 'The storage API failed. Retry the request.')
      })
    },
  }
}

async function answer(files: ObjectFiles, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const accounts = request.headersDistinct['x-authenticated-account-id']
  const account = accounts?.[0]
  if (account === undefined || accounts?.length !== 1) {
    const why =
      'Only requests that the sidecar has authenticated are served: X-Authenticated-Account-Id is missing.'
    return refuse(response, 403, 'NotAuthenticated', why)
  }
  /* c8 ignore next -- both are there in every request a server receives */
  const { method = '', url = '' } = request
  const mark = url.indexOf('?')
  const key = mark === -1 ? url : url.slice(0, mark)
  const query = new URLSearchParams(mark === -1 ? '' : url.slice(mark + 1))
  const call = { account, key, query, request, response }
  const methods = key === '/' ? rootMethods : objectMethods
  const serve = methods.get(method)
  if (serve !== undefined) return serve(files, call)
  response.setHeader('Allow', [...methods.keys()].join(', '))
  refuse(response, 405, 'MethodNotAllowed', 'The method is not allowed here.')
}

type Method = (files: ObjectFiles, call: Call) => Promise<void>

const rootMethods: ReadonlyMap<string, Method> = new Map([
  ['GET', list],
  ['HEAD', list],
])

const objectMethods: ReadonlyMap<string, Method> = new Map([
  ['GET', get],
  ['HEAD', get],
  ['PUT', put],
  ['DELETE', remove],
])

async function list(files: ObjectFiles, { account, query, response }: Call): Promise<void> {
  answerJson(response, 200, { objects: await files.list(account, query.get('prefix') ?? '') })
}

async function put(files: ObjectFiles, { account, key, request, response }: Call): Promise<void> {
  const contentType = request.headers['content-type'] ?? 'application/octet-stream'
  // The iterator must leave the request open when the disk fails: the client is owed an answer.
  const body = request.iterator({ destroyOnReturn: false })
  const { created, metadata } = await files.put(account, key, contentType, body)
  response.setHeader('ETag', metadata.etag)
  answerJson(response, created ? 201 : 200, metadata)
}

async function remove(files: ObjectFiles, { account, key, response }: Call): Promise<void> {
  if (!(await files.remove(account, key))) return noSuchObject(response)
  response.writeHead(204).end()
}

async function get(files: ObjectFiles, { account, key, request, response }: Call): Promise<void> {
  const object = await files.open(account, key)
  if (object === undefined) return noSuchObject(response)
  const { metadata } = object
  response.setHeader('ETag', metadata.etag)
  response.setHeader('Last-Modified', new Date(metadata.lastModified).toUTCString())
  if (namesEtag(request.headers['if-none-match'], metadata.etag)) {
    await object.close()
    response.writeHead(304).end()
    return
  }
  response.setHeader('Accept-Ranges', 'bytes')
  const range = request.method === 'GET' ? rangeOf(request, metadata) : undefined
  if (range === 'unsatisfiable') {
    await object.close()
    response.setHeader('Content-Range', `bytes */${metadata.size}`)
    return refuse(response, 416, 'InvalidRange', 'The range lies outside the object.')
  }
  const { first, last } = range ?? { first: 0, last: metadata.size - 1 }
  response.setHeader('Content-Type', metadata.contentType)
  response.setHeader('Content-Length', last - first + 1)
  if (range !== undefined) response.setHeader('Content-Range', `bytes ${first}-${last}/${metadata.size}`)
  response.writeHead(range === undefined ? 200 : 206)
  if (request.method === 'HEAD' || metadata.size === 0) {
    await object.close()
    response.end()
    return
  }
  await pipeline(object.read(first, last), response)
}

/** A range holds only for the version it was asked of (RFC 9110, section 13.1.5). */
function rangeOf({ headers }: IncomingMessage, { etag, size }: ObjectMetadata) {
  const version = headers['if-range']
  return version === undefined || version === etag ? byteRange(headers.range, size) : undefined
}

/** Whether `If-None-Match` names this entity tag (weak comparison, RFC 9110, section 13.1.2). */
function namesEtag(header: string | undefined, etag: string): boolean {
  const tags = (header ?? '').split(',').map((tag) => tag.trim().replace(/^W\//, ''))
  return tags.includes(etag) || tags[0] === '*'
}

/** What Node says of an upload, and of a download, whose client is gone; no disk says either. */
const CLIENT_LEFT: ReadonlySet<unknown> = new Set(['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE'])

function clientLeft(fault: unknown): boolean {
  return fault instanceof Error && 'code' in fault && CLIENT_LEFT.has(fault.code)
}

function noSuchObject(response: ServerResponse): void {
  refuse(response, 404, 'NoSuchObject', 'There is no object of this key.')
}

function refuse(response: ServerResponse, status: number, code: string, message: string): void {
  answerJson(response, status, { code, message })
}

function answerJson(response: ServerResponse, status: number, value: unknown): void {
  const body = `${JSON.stringify(value)}\n`
  response.setHeader('Content-Type', 'application/json')
  response.setHeader('Content-Length', Buffer.byteLength(body))
  response.writeHead(status).end(body)
}
