/** A request and its context, without a connection. */
import { Socket } from 'node:net'
import type { Peer } from '../../src/client/client-address.ts'
import { type RequestContext, SidecarRequest } from '../../src/client/request.ts'
import { TransferTurns } from '../../src/client/transfer-turns.ts'

export function requestContext(peer: Peer, id: string): RequestContext {
  const { context } = requestOn(new Socket(), peer)
  context.recordHead(undefined, id)
  return context
}

export function requestOn(socket: Socket, peer: Peer): SidecarRequest {
  const req = new SidecarRequest(socket)
  req.createContext({
    peer,
    socket,
    tcpSocket: socket,
    detectReset() {},
    abort() {},
    end: { discardBody() {} },
    isDraining: () => false,
    transferTurns: new TransferTurns(),
    nextHead: { mayHaveLostBytes: () => false },
  })
  return req
}
