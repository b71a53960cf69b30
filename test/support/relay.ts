/** A TCP relay, as a Service in front of hubs: it can change its target, or let no byte pass. */
import { connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'
import { listen } from './listen.ts'

export async function startRelay(t: Pick<Test, 'teardown'>, target: number) {
  const sockets = new Set<Socket>()
  const state = { target, isPartitioned: false }
  const server = createServer((client) => {
    const upstream = connect(state.target, '127.0.0.1')
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from)
      from.on('data', (bytes) => {
        if (!state.isPartitioned) {
          to.write(bytes)
        }
      })
      from.on('error', () => {})
      from.on('close', () => {
        sockets.delete(from)
        to.destroy()
      })
    }
  })
  const port = await listen(t, server)
  const cut = () => {
    for (const socket of sockets) {
      socket.destroy()
    }
  }
  t.teardown(cut)
  return {
    port,
    /** New connections lead there, and those that are open end. */
    lead(to: number) {
      state.target = to
      cut()
    },
    /** No byte passes, and no connection ends: as a network does that loses all packets. */
    partition(isPartitioned: boolean) {
      state.isPartitioned = isPartitioned
    },
  }
}
