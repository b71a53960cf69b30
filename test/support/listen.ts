/** Servers of tests, on free ports. */
import { once } from 'node:events'
import type { AddressInfo, Server } from 'node:net'
import type { Test } from 'tap'

/** Listens on a free or given port of the loopback interface until the end of the test. Returns the port. */
export async function listen(
  t: Pick<Test, 'teardown'>,
  server: Server & { closeAllConnections?(): void },
  listenOn = 0,
): Promise<number> {
  await once(server.listen(listenOn, '127.0.0.1'), 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections?.()
  })
  return (server.address() as AddressInfo).port
}
