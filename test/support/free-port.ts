/** A port that was free a moment ago. */
import { createServer } from 'node:net'

/** Below the ephemeral ports, of which tests that run at the same time use thousands. */
const [FIRST_PORT, LAST_PORT] = [10_000, 20_000]

/** Returns a port of the loopback interface on which nothing listens. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST_PORT + Math.floor(Math.random() * (LAST_PORT - FIRST_PORT))
    const isFree = await new Promise<boolean>((resolve) => {
      const server = createServer().once('error', () => resolve(false))
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
    })
    if (isFree) return port
  }
}
