import t from 'tap'
import { shareOf } from '../../src/workers/share.ts'
import { accepted } from '../config/support.ts'

t.test('sockets and queues are shared out, so that together they are no fewer than was set', async (t) => {
  const { config } = accepted({
    yaml: 'limits: { connections: 10, upstreamConnections: 5, upstreamQueue: 1 }',
  })
  t.match(shareOf(config, 4).limits, { connections: 3, upstreamConnections: 2, upstreamQueue: 1 })
})

t.test('what bounds one request or one connection stays as it is', async (t) => {
  const { config } = accepted({})
  const { limits, ...others } = shareOf(config, 4)
  t.same({ ...others, limits: config.limits }, config)
  for (const name of ['headerBytes', 'headerLines', 'inFlightPerConnection', 'loginFailures'] as const)
    t.same(limits[name], config.limits[name], name)
})
