import { Socket } from 'node:net'
import t from 'tap'
import { createPeers } from '../../src/client/client-address.ts'
import { Upload } from '../../src/proxy/upload.ts'
import { requestOn } from '../support/request-context.ts'
import { admitted } from '../support/request-heads.ts'

t.test(
  'at the start, and after a pause for the upstream, a client has the whole idle time to send more',
  (t) => {
    const socket = new Socket().setTimeout(60_000)
    t.teardown(() => socket.destroy())
    const peer = createPeers([])(socket, false, 80)
    const allowed = { act: 'forward', caller: undefined, forwardsAuthorization: false } as const
    const decision = { ...allowed, isRestricted: false, admitted: admitted({}) }
    const settings = { limits: { uploadBytesPerSecond: 500 }, timeouts: { idleSeconds: 60 } }
    const writer = { writeBody: () => false }
    const upload = new Upload(requestOn(socket, peer), decision, writer, settings)
    const restarts = t.capture(socket, 'setTimeout')
    upload.start()
    upload.onWritable()
    upload.onWritable()
    const delays = restarts().map(({ args }) => args.join())
    t.same(delays, ['60000', '60000'])
    t.end()
  },
)
