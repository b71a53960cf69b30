/** The context of a request, without its connection. */
import { Socket } from 'node:net'
import type { Peer } from '../../src/client/client-address.ts'
import { type RequestContext, SidecarRequest } from '../../src/client/request.ts'

export function requestContext(peer: Peer, id: string): RequestContext {
  const req = new SidecarRequest(new Socket())
  req.createContext({
    ...{ peer, socket: new Socket(), tcpSocket: new Socket(), detectReset() {}, abort() {} },
    end: { discardBody() {} },
    isDraining: () => false,
    nextHead: { mayHaveLostBytes: () => false },
  })
  req.context.recordHead(undefined, id)
  return req.context
}
