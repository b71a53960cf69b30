/** Ports for programs that cannot listen on port 0. */
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Ports of the loopback interface without a listener, each another one. */
export async function freePorts(count: number): Promise<readonly number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'))
  await Promise.all(servers.map((server) => once(server, 'listening')))
  const addresses = servers.map((server) => server.address())
  await Promise.all(servers.map((server) => once(server.close(), 'close')))
  return addresses.map((address) => {
    if (address === null || typeof address === 'string') throw new Error('a TCP server has a port')
    return address.port
  })
}

/** A port of the loopback interface without a listener. */
export async function freePort(): Promise<number> {
  const [port = 0] = await freePorts(1)
  return port
}
