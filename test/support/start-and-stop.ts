/**
 * A program that starts a sidecar, and another one that only verifies, uses them, stops them, and then has nothing
 * left to do: it must end by itself.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rawClient } from './raw-client.ts'
import { recordingUpstream } from './recording-upstream.ts'
import { startSidecar } from './sidecar.ts'

const directory = mkdtempSync(join(tmpdir(), 'sidecar-'))
const cleanUps: (() => unknown)[] = []
const owner = {
  teardown: (cleanUp: () => unknown) => void cleanUps.push(cleanUp),
  testdir: () => directory,
}

const upstream = await recordingUpstream(owner)
const sidecar = await startSidecar(owner, { upstreamUrl: upstream.url })
const verifyOnly = await startSidecar(owner, {
  upstreamUrl: upstream.url,
  jwksUrl: `http://127.0.0.1:${sidecar.adminPort}/.well-known/jwks.json`,
})
const statuses: number[] = []
for (const { port } of [sidecar, verifyOnly]) {
  const client = await rawClient(owner, port)
  client.send(`GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
  statuses.push((await client.response()).status)
}
const admin = await rawClient(owner, sidecar.adminPort)
admin.send('GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n')
await admin.response()
await sidecar.stop()
await verifyOnly.stop()
for (const cleanUp of cleanUps) await cleanUp()
rmSync(directory, { recursive: true })
process.stdout.write(`answered ${statuses.join(' and ')}, stopped\n`)
