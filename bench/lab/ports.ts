/**
 * Ports of the loopback interface.
 *
 * @module
 */
import { connect, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** Below the ports that the kernel gives to outgoing connections, of which the loads open very many. */
const [LOWEST, HIGHEST] = [20_000, 32_000]

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST))
    if (await isFree(port)) return port
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer().once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}

/** Resolves once somebody accepts connections on a port; rejects after ten seconds. */
export async function listening(port: number): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    if (await accepts(port)) return
    await sleep(20)
  }
  throw new Error(`nobody listens on port ${port}`)
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
