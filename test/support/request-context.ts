/** The context of a request, without its connection. */
import { Socket } from 'node:net'
import type { Peer } from '../../src/client/client-address.ts'
import { RequestContext } from '../../src/client/context.ts'

export function requestContext(peer: Peer, id: string): RequestContext {
  const context = new RequestContext({
    peer,
    tcpSocket: new Socket(),
    isDraining: () => false,
    detectReset() {},
    abort() {},
  })
  context.recordRoute(undefined, id)
  return context
}
