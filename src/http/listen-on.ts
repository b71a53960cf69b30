/**
 * Begins to listen.
 *
 * @module
 */
import type { AddressInfo, Server } from 'node:net'

/** Where to listen, and who is told of what goes wrong later. */
export interface ListenOnOptions {
  readonly host: string
  readonly port: number
  /** Told of faults of the listening socket, such as running out of descriptors. */
  readonly onFault: (error: Error) => void
}

/** Resolves with where the server listens. Rejects when the address cannot be had. */
export function listenOn(server: Server, { host, port, onFault }: ListenOnOptions): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.removeListener('error', reject)
      server.on('error', onFault)
      resolve(server.address() as AddressInfo)
    })
  })
}
