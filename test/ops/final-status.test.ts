import t from 'tap'
import { DRAIN_DEADLINE, finalStatus } from '../../src/ops/final-status.ts'

const exchange = { res: { statusCode: 200 }, reason: undefined, switched: false }

t.test('a whole answer counts under its own status', async (t) => {
  t.equal(finalStatus(exchange, true), 200)
  t.equal(finalStatus({ ...exchange, res: { statusCode: 503 }, reason: 'dns_error' }, true), 503)
})

t.test('an answer that broke off never counts under the status that it began with', async (t) => {
  for (const [reason, status] of [
    [undefined, 499],
    ['expired', 499], // left before the refusal had gone
    ['client_aborted', 499],
    ['client_idle', 499],
    ['http_response_incomplete', 503],
    ['connection_read_timeout', 503],
    [DRAIN_DEADLINE, 503],
  ] as const) {
    t.equal(finalStatus({ ...exchange, reason }, false), status, String(reason))
  }
})

t.test('a tunnel counts as 101, however it ends', async (t) => {
  t.equal(finalStatus({ ...exchange, switched: true, reason: 'client_aborted' }, false), 101)
})
