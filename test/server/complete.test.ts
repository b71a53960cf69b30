import { Socket } from 'node:net'
import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { createLog } from '../../src/ops/log.ts'
import { createPeers } from '../../src/server/client-address.ts'
import { type CompleteOptions, createComplete } from '../../src/server/complete.ts'
import {
  ClientConnection,
  type RequestContext,
  SidecarRequest,
  SidecarResponse,
} from '../../src/server/context.ts'
import { admitted } from '../support/request-heads.ts'

const peer = createPeers([])({ remoteAddress: '192.0.2.1', localPort: 1 }, false)
const identity = { accountId: 'acme', accessKey: 'AK1', tokenId: 'jti-1', expiresAt: 1 }
const caller = { ok: true, identity } as const

type Facts = Partial<Omit<RequestContext, 'connection'>> & { status?: number; method?: string; url?: string }

/** Completes a request with these facts; returns its log line and the counted values. */
function complete(facts: Facts, finished = true, options: Partial<CompleteOptions> = {}) {
  const lines: Record<string, unknown>[] = []
  const counted: unknown[][] = []
  const { onComplete, onParserError } = createComplete({
    metrics: {
      onRequest: (route, method, status) => counted.push([route, method, status]),
      onBytes: (direction, bytes) => counted.push([direction, bytes]),
    },
    log: createLog('info', { write: (line) => void lines.push(JSON.parse(line)) }),
    access: 'all',
    clientAddress: () => '198.51.100.1',
    isAborting: () => false,
    ...options,
  })
  const socket = new Socket()
  new ClientConnection(socket, socket, peer)
  const req = new SidecarRequest(socket)
  const { status = 200, method = 'GET', url = '/', ...context } = facts
  Object.assign(req, { method, url })
  Object.assign(req.context, { id: 'id-1', startedAt: performance.now(), ...context })
  const res = new SidecarResponse(req)
  res.statusCode = status
  onComplete(req, res, finished)
  return { line: lines[0], counted, lines, onParserError }
}

t.test('a request is logged and counted', async (t) => {
  const facts = { admitted: admitted({ url: '/b/k?x' }), caller, bytesIn: 3, bytesOut: 4, method: 'PUT' }
  const { line = {}, counted } = complete({ ...facts, wouldRefuse: 'expired' })
  const { time, ms, ...rest } = line
  t.type(time, 'string')
  t.type(ms, 'number')
  t.strictSame(rest, {
    level: 30,
    requestId: 'id-1',
    method: 'PUT',
    path: '/b/k',
    route: 'proxy',
    status: 200,
    wouldRefuse: 'expired',
    bytesIn: 3,
    bytesOut: 4,
    account: 'acme',
    tokenId: 'jti-1',
    client: '198.51.100.1',
    msg: 'request',
  })
  t.strictSame(counted, [
    ['proxy', 'PUT', 200],
    ['in', 3],
    ['out', 4],
  ])
})

t.test('a truncated response is not counted under its own status', async (t) => {
  for (const [facts, finished, cutting, status, reason] of [
    [{ status: 503, reason: 'dns_error' }, true, false, 503, 'dns_error'],
    [{}, false, false, 499, undefined],
    [{ reason: 'client_idle' }, false, false, 499, 'client_idle'],
    [{ reason: 'http_response_incomplete' }, false, false, 503, 'http_response_incomplete'],
    [{}, false, true, 503, 'drain_deadline'],
    [{ isUpgraded: true }, false, true, 101, undefined],
  ] as const) {
    const { line, counted } = complete(facts, finished, { isAborting: () => cutting })
    t.strictSame([line?.['status'], line?.['reason'], counted[0]?.[2]], [status, reason, status])
  }
})

t.test('log.access selects the logged requests; every request is counted', async (t) => {
  for (const [facts, isError] of [
    [{ status: 404 }, false], // of the upstream
    [{ status: 400, reason: 'expired' }, true],
    [{ status: 200, wouldRefuse: 'expired' }, true],
    [{ status: 502 }, true],
  ] as const) {
    for (const [access, hasLine] of [
      ['all', true],
      ['errors', isError],
      ['off', false],
    ] as const) {
      const { lines, counted } = complete(facts, true, { access })
      t.strictSame([lines.length, counted.length], [hasLine ? 1 : 0, 1], access)
    }
  }
})

t.test('the log omits queries, passwords in targets and control characters', async (t) => {
  for (const [url, path] of [
    ['/a?canary', '/a'],
    ['/a#canary', '/a'],
    ['/a?x\n=canary', '/a'],
    ['http://user:canary@host/a', undefined],
    ['canary:443', undefined],
  ] as const) {
    const { line } = complete({ url, reason: 'admission', status: 400 })
    t.equal(line?.['path'], path, url)
    t.notMatch(JSON.stringify(line), /canary|account/)
  }
  const accountId = `a\r\n{"level":30}\x1b[2J\u2028${'n'.repeat(1000)}`
  const { line = {} } = complete({ url: `/${'p'.repeat(9000)}`, issuedTo: { ...identity, accountId } })
  t.equal(String(line['path']).length, 257)
  t.match(line['account'], /^a\ufffd\ufffd\{"level":30\}\ufffd\[2J\ufffdn+…$/)
})

t.test('bytes that are not a request are counted and logged with an id', async (t) => {
  const { lines, counted, onParserError } = complete({})
  const requestId = onParserError(ERRORS.headersTooLarge, peer)
  t.match(lines[1], { requestId, status: 431, reason: 'parser', client: '192.0.2.1' })
  t.strictSame(counted[1], ['proxy', undefined, 431])
})
