import t from 'tap'
import { admit, type LastAdmitted } from '../../src/gate/admission.ts'
import { NO_LINES } from '../../src/http1/field-lines.ts'
import { RequestReader } from '../../src/http1/request-reader.ts'
import { keptMemory } from '../support/kept-memory.ts'

t.test('a connection does not keep the target that came last on it', async (t) => {
  const limits = { headerBytes: 16384, headerLines: 200 }
  const connections: unknown[] = []
  const kept = keptMemory(() => {
    for (let number = 0; number < 1000; number++) {
      const last: LastAdmitted = { rawHeaders: NO_LINES, fields: undefined }
      const sink = {
        onHead: (head: Parameters<typeof admit>[0]) => {
          const admission = admit(head, limits, last)
          return admission.ok ? admission.request : undefined
        },
        onBody: () => {},
        onEnd: () => {},
      }
      const reader = new RequestReader(sink, limits)
      reader.push(
        Buffer.from(`GET /${'t'.repeat(16_000)}${number} HTTP/1.1\r\nHost: a\r\nX: ${number}\r\n\r\n`),
      )
      connections.push(reader, last)
    }
  })
  t.ok(kept < 1000 * 4000, `${Math.round(kept / 1000)} bytes are kept for each connection`)
})
