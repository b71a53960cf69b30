/**
 * Runs the demo's storage API on a listener of its own.
 *
 * In: a directory and where to listen. Out: the address it listens on, once it does.
 *
 * @module
 */
import { createServer } from 'node:http'
import { createObjectStore, type ObjectStoreOptions } from './object-store.ts'

/** A storage API that listens. */
export interface RunningObjectStore {
  readonly address: string
  readonly port: number
  /** Stops listening and cuts every connection. */
  close(): Promise<void>
}

/**
 * Listens on `host` (127.0.0.1 without it) and `port` (any free one without it). Rejects when the directory
 * cannot be made or the address cannot be had.
 */
export async function startObjectStore(
  options: ObjectStoreOptions & { readonly host?: string; readonly port?: number },
): Promise<RunningObjectStore> {
  const store = createObjectStore(options)
  // An upload may last as long as it makes progress: the sidecar in front watches over idle time.
  const server = createServer({ requestTimeout: 0 }, store.handle)
  const { host = '127.0.0.1', port = 0 } = options
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve)
  })
  const bound = server.address()
  /* c8 ignore next -- only a server on a pipe, or one that does not listen, has another kind of address */
  if (bound === null || typeof bound === 'string') throw new TypeError('not a network address')
  return {
    address: bound.address,
    port: bound.port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
