import type { IncomingMessage } from 'node:http'
import t from 'tap'
import type { Exchange } from '../../src/http/exchange.ts'
import { type AccessMode, createAccessLog } from '../../src/ops/access-log.ts'
import { createLog } from '../../src/ops/log.ts'

/** What of an exchange the log looks at. */
interface Seen {
  readonly method?: string
  readonly url?: string
  readonly path?: string
  readonly identity?: Exchange['identity']
  readonly reason?: string
  readonly route?: Exchange['route']
}

/** The lines that exchanges leave. */
function logged(mode: AccessMode, seen: readonly (Seen & { readonly status: number })[]) {
  const lines: Record<string, unknown>[] = []
  const log = createLog('info', { write: (line) => void lines.push(JSON.parse(line)) })
  const accessLog = createAccessLog({ log, mode, clientAddress: () => '192.0.2.1' })
  for (const { method = 'GET', url = '/from-url', path, status, route = 'proxy', ...rest } of seen) {
    const req = { method, url } as IncomingMessage
    const admitted = path === undefined ? undefined : { path }
    const facts = { requestId: 'id-1', route, bytesIn: 3, bytesOut: 4, req, admitted, ...rest }
    accessLog(facts as unknown as Exchange, status, 1.23456)
  }
  return lines
}

const IDENTITY = { accountId: 'acme', accessKey: 'AK1', tokenId: 'jti-1', expiresAt: 1 }

t.test('a line says who asked for what and how it ended', async (t) => {
  const [line] = logged('all', [{ status: 200, path: '/b/k', identity: IDENTITY }])
  const { time, ...rest } = line ?? {}
  t.type(time, 'string')
  t.strictSame(rest, {
    level: 30,
    requestId: 'id-1',
    method: 'GET',
    path: '/b/k',
    route: 'proxy',
    status: 200,
    bytesIn: 3,
    bytesOut: 4,
    ms: 1.235,
    account: 'acme',
    tokenId: 'jti-1',
    client: '192.0.2.1',
    msg: 'request',
  })
})

t.test('which requests get a line is the setting’s to say', async (t) => {
  const seen = [200, 304, 399, 400, 403, 499, 503].map((status) => ({ status }))
  const statuses = (mode: AccessMode) => logged(mode, seen).map(({ status }) => status)
  t.strictSame(statuses('all'), [200, 304, 399, 400, 403, 499, 503])
  t.strictSame(statuses('errors'), [400, 403, 499, 503])
  t.strictSame(statuses('off'), [])
})

t.test('a log that is kept to warnings has none of these lines', async (t) => {
  const log = createLog('warn', { write: (line) => t.fail(line) })
  const exchange = { requestId: 'id-1', route: 'proxy', req: { method: 'GET', url: '/' } }
  createAccessLog({ log, mode: 'all', clientAddress: () => '192.0.2.1' })(
    exchange as unknown as Exchange,
    400,
    1,
  )
})

t.test('nobody is named who has not been verified', async (t) => {
  const [line] = logged('all', [{ status: 400, path: '/x', reason: 'signature' }])
  t.notHas(line, { account: /./ })
  t.notHas(line, { tokenId: /./ })
  t.equal(line?.['reason'], 'signature')
})

t.test('a query or what no path is does not get into the log, as it may hold a secret', async (t) => {
  for (const [url, path] of [
    ['/a?canary', '/a'],
    ['/a#canary', '/a'],
    ['/a?x\n=canary', '/a'],
    ['/', '/'],
    ['http://user:canary@host/a', undefined],
    ['canary:443', undefined],
    ['*', undefined],
  ] as const) {
    const [line] = logged('all', [{ status: 400, url }])
    t.equal(line?.['path'], path, url)
    t.notMatch(JSON.stringify(line), /canary/, url)
  }
})

t.test('text of clients is bounded and stays on its line', async (t) => {
  const [line] = logged('all', [
    {
      status: 200,
      method: 'M'.repeat(1000),
      path: `/${'p'.repeat(10_240)}`,
      identity: { ...IDENTITY, accountId: `a\r\n{"level":30}\x1b[2J\u2028${'n'.repeat(1000)}` },
    },
  ])
  t.equal(String(line?.['method']).length, 33)
  t.equal(String(line?.['path']).length, 257)
  t.match(line?.['account'], /^a��\{"level":30\}�\[2J�n+…$/)
})
