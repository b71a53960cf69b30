/**
 * A program that starts a sidecar, uses it, stops it, and then has nothing left to do: it must end by itself.
 *
 * @module
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
const client = await rawClient(owner, sidecar.port)
client.send(`GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`)
const { status } = await client.response()
const admin = await rawClient(owner, sidecar.adminPort)
admin.send('GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n')
await admin.response()
await sidecar.stop()
for (const cleanUp of cleanUps) await cleanUp()
rmSync(directory, { recursive: true })
process.stdout.write(`answered ${status}, stopped\n`)
