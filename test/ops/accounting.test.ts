import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import type { Exchange } from '../../src/http/exchange.ts'
import { createPeers } from '../../src/http/peer.ts'
import type { AccessMode } from '../../src/ops/access-log.ts'
import { createAccounting } from '../../src/ops/accounting.ts'
import { createLog } from '../../src/ops/log.ts'

/** Accounting at 1500 ms, and what it tells of what it is told of. */
function accounting(mode: AccessMode = 'all', isCutting = false) {
  const counted: unknown[][] = []
  const lines: Record<string, unknown>[] = []
  const made = createAccounting({
    metrics: {
      onRequest: (...request) => void counted.push(request),
      onBytes: (...bytes) => void counted.push(bytes),
    },
    log: createLog('info', { write: (line) => void lines.push(JSON.parse(line)) }),
    mode,
    clientAddress: () => '192.0.2.1',
    monotonicNow: () => 1500,
    isCutting: () => isCutting,
  })
  return { ...made, counted, lines }
}

/** An exchange that began at 1000 ms and was answered with 200. */
function exchange(): Exchange {
  const facts = {
    req: { method: 'GET', url: '/b' },
    res: { statusCode: 200 },
    route: 'proxy',
    startedAt: 1000,
    bytesIn: 3,
    bytesOut: 4,
    switched: false,
  }
  return facts as unknown as Exchange
}

t.test('an exchange is counted once, with its bytes and its time, and gets its line', async (t) => {
  const { onOver, counted, lines } = accounting()
  onOver(exchange(), true)
  t.strictSame(counted, [
    ['proxy', 'GET', 200, 0.5],
    ['in', 3],
    ['out', 4],
  ])
  t.match(lines, [{ msg: 'request', status: 200, ms: 500 }])
})

t.test('one that is cut is told apart from one whose client left', async (t) => {
  for (const [isCutting, status, reason] of [
    [false, 499, undefined],
    [true, 503, 'drain_deadline'],
  ] as const) {
    const { onOver, lines } = accounting('all', isCutting)
    onOver(exchange(), false)
    t.match(lines, [{ status }])
    t.equal(lines[0]?.['reason'], reason)
  }
  const { onOver, lines } = accounting('all', true)
  onOver(exchange(), true)
  t.notOk(lines[0]?.['reason'], 'the last whole answer is no cut one')
})

t.test('what the parser refused is counted without a method, and logged unless nothing is', async (t) => {
  const peer = createPeers([])({ remoteAddress: '192.0.2.7', localPort: 1, tls: false })
  for (const mode of ['errors', 'off'] as const) {
    const { onRefused, counted, lines } = accounting(mode)
    onRefused(ERRORS.headersTooLarge, 'id-1', peer)
    t.strictSame(counted, [['proxy', undefined, 431, 0]])
    const line = { requestId: 'id-1', status: 431, reason: 'parser', client: '192.0.2.7' }
    if (mode === 'off') t.strictSame(lines, [])
    else t.match(lines, [line])
  }
})
