/** A hub of the feed on a local port. It answers from states that a test sets, or by a script. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createTlsServer, type ServerOptions } from 'node:https'
import type { Test } from 'tap'
import type { FeedCredential, FeedDocument, FeedRevocation } from '../../src/credentials/feed/format.ts'
import { Waiters } from './eventually.ts'
import { listen } from './listen.ts'

export interface HubState {
  readonly credentials: readonly FeedCredential[]
  readonly revocations?: readonly FeedRevocation[]
}

export interface HubRequest {
  readonly since: string | null
  readonly waits: boolean
  readonly authorization: string | undefined
  /** The number of its connection. */
  readonly connection: number
}

export type TestHub = Awaited<ReturnType<typeof startHub>>

export const wholeDocument = (
  version: string,
  { credentials, revocations = [] }: HubState,
): FeedDocument => ({
  format: 1,
  version,
  from: null,
  credentials: { set: credentials, removed: [] },
  revocations: { set: revocations, removed: [] },
})

const isSame = (a: object, b: object) => JSON.stringify(a) === JSON.stringify(b)
const missingIn = <T extends object>(list: readonly T[], entries: readonly T[]) =>
  entries.filter((entry) => !list.some((other) => isSame(other, entry)))

function changesDocument(from: string, before: HubState, version: string, after: HubState): FeedDocument {
  const removed = before.credentials.filter(
    ({ accountId, accessKey }) =>
      !after.credentials.some((one) => one.accountId === accountId && one.accessKey === accessKey),
  )
  const [ended = [], now = []] = [before.revocations, after.revocations]
  return {
    format: 1,
    version,
    from,
    credentials: {
      set: missingIn(before.credentials, after.credentials),
      removed: removed.map(({ accountId, accessKey }) => ({ accountId, accessKey })),
    },
    revocations: { set: missingIn(ended, now), removed: missingIn(now, ended) },
  }
}

/** `respond` of the hub: a script that replaces its answers. */
export async function startHub(t: Pick<Test, 'teardown'>, first: HubState, tls?: ServerOptions) {
  const versions = new Map<string, HubState>([['v1', first]])
  const requests: HubRequest[] = []
  let published = 1
  const waiters = new Waiters()
  const waiting = new Set<() => void>()
  const connections: object[] = []
  const hub = {
    url: '',
    port: 0,
    version: 'v1',
    /** Ends its connections, and refuses others. */
    stop: () => {},
    /** Is there again, at the same port. */
    start: async () => {},
    requests,
    respond: undefined as ((res: ServerResponse, request: HubRequest) => void) | undefined,
    /** A new state: followers that wait receive it at once. Returns its version. */
    publish(state: HubState, version = `v${published + 1}`): string {
      published++
      versions.set(version, state)
      hub.version = version
      hub.wake()
      return version
    },
    /** Forgets all versions but the newest, as a hub that restarts does. */
    forget() {
      const newest = versions.get(hub.version)
      versions.clear()
      if (newest !== undefined) {
        versions.set(hub.version, newest)
      }
    },
    wake() {
      for (const answer of [...waiting]) {
        answer()
      }
    },
    /** Resolves once a request has come that the test wants to see, after those before. */
    until: (isWanted: (request: HubRequest, at: number) => boolean, what = 'a request to the hub') =>
      waiters.wait(
        () => (requests.some(isWanted) ? true : undefined),
        () => `${what}; ${JSON.stringify(requests.slice(-5))}`,
      ),
    send(res: ServerResponse, document: unknown, headers: Record<string, string> = {}) {
      res.writeHead(200, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(document))
    },
  }

  function answer(res: ServerResponse, { since }: HubRequest): boolean {
    const newest = versions.get(hub.version) ?? first
    if (since === hub.version) {
      return false
    }
    const before = since === null ? undefined : versions.get(since)
    const document =
      since === null || before === undefined
        ? wholeDocument(hub.version, newest)
        : changesDocument(since, before, hub.version, newest)
    hub.send(res, document)
    return true
  }

  function serve(req: IncomingMessage, res: ServerResponse): void {
    if (!connections.includes(req.socket)) {
      connections.push(req.socket)
    }
    const { authorization, prefer } = req.headers
    const request: HubRequest = {
      since: new URL(`http://hub${req.url}`).searchParams.get('since'),
      waits: prefer !== undefined,
      authorization,
      connection: connections.indexOf(req.socket),
    }
    requests.push(request)
    waiters.wake()
    if (hub.respond !== undefined) {
      hub.respond(res, request)
      return
    }
    if (answer(res, request)) {
      return
    }
    if (!request.waits) {
      res.writeHead(304).end()
      return
    }
    const lookAgain = () => {
      if (answer(res, request)) {
        waiting.delete(lookAgain)
      }
    }
    waiting.add(lookAgain)
    res.on('close', () => waiting.delete(lookAgain))
  }

  const server = tls === undefined ? createServer(serve) : createTlsServer(tls, serve)
  const scheme = tls === undefined ? 'http' : 'https'
  hub.port = await listen(t, server)
  hub.url = `${scheme}://127.0.0.1:${hub.port}/feed`
  hub.stop = () => {
    server.close()
    server.closeAllConnections()
  }
  hub.start = async () => {
    await once(server.listen(hub.port, '127.0.0.1'), 'listening')
  }
  return hub
}
