/** Ports for programs that cannot listen on port 0. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'

/** Below the ephemeral ports, of which the benchmark and tests that run at the same time use thousands. */
const FIRST_PORT = 10_000
const BLOCKS = 100
const BLOCK_PORTS = 100

let ownBlock: Promise<number> | undefined
let taken = 0

/** A port of the loopback interface without a listener. No other process of the tests gets it. */
export async function freePort(): Promise<number> {
  ownBlock ??= holdBlock()
  const first = await ownBlock
  while (true) {
    const port = first + 1 + (taken % (BLOCK_PORTS - 1))
    taken++
    const server = await listenOn(port)
    if (server !== undefined) {
      await new Promise((resolve) => server.close(resolve))
      return port
    }
  }
}

/** Several of them. */
export function freePorts(count: number): Promise<readonly number[]> {
  return Promise.all(Array.from({ length: count }, freePort))
}

/**
 * Listens on the first port of a block until the process ends, by which the block is its own: a program
 * listens on its port a moment after the port was found free. Resolves with that first port.
 */
async function holdBlock(): Promise<number> {
  let block = process.pid % BLOCKS
  while (true) {
    const first = FIRST_PORT + block * BLOCK_PORTS
    const server = await listenOn(first)
    if (server !== undefined) {
      server.unref()
      return first
    }
    block = (block + 1) % BLOCKS
  }
}

/** Undefined if another process has the port. */
async function listenOn(port: number): Promise<Server | undefined> {
  const server = createServer()
  server.listen(port, '127.0.0.1')
  try {
    await once(server, 'listening')
    return server
  } catch {
    return undefined
  }
}
