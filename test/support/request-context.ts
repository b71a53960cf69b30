/** The context of a request, without its connection. */
import { Socket } from 'node:net'
import type { Peer } from '../../src/server/client-address.ts'
import { RequestContext } from '../../src/server/context.ts'

export function requestContext(peer: Peer, id: string): RequestContext {
  const context = new RequestContext({
    peer,
    tcpSocket: new Socket(),
    mustClose: false,
    abort() {},
    finish() {},
  })
  context.id = id
  return context
}
