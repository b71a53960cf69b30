/** Ports for programs that cannot listen on port 0. */
import { createServer } from 'node:net'

/**
 * Below the ephemeral ports, of which the benchmark and tests that run at the same time use thousands. Each
 * process has a hundred of its own: a program listens on its port a moment after the port was found free.
 */
const FIRST_PORT = 10_000 + (process.pid % 100) * 100
let taken = 0

/** A port of the loopback interface without a listener. */
export async function freePort(): Promise<number> {
  while (true) {
    const port = FIRST_PORT + (taken % 100)
    taken++
    const isFree = await new Promise<boolean>((resolve) => {
      const server = createServer().once('error', () => resolve(false))
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
    })
    if (isFree) {
      return port
    }
  }
}

/** Several of them. */
export function freePorts(count: number): Promise<readonly number[]> {
  return Promise.all(Array.from({ length: count }, freePort))
}
