import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { createConnections } from '../../../src/credentials/postgres/connections.ts'
import { postgresFailure } from '../../../src/credentials/postgres/failure.ts'

t.test('a certificate file that became a pipe fails the connection, and holds nothing up', async (t) => {
  const pipe = join(t.testdir({}), 'ca.pem')
  execFileSync('mkfifo', [pipe])
  const target = { url: `postgres://127.0.0.1:1/x?sslrootcert=${pipe}`, label: 'x', tlsFiles: [pipe] }
  const connections = createConnections(target, { max: 1, connectMs: 1000 })
  t.teardown(connections.close)
  const cause = await connections.take().catch((error: unknown) => error)
  t.same(postgresFailure(cause), {
    kind: 'away',
    message: 'the connection failed (a certificate or key file that the URL names is not a file)',
  })
})
