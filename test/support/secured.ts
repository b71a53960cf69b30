/**
 * A sidecar that speaks TLS to its clients, in front of a recording upstream.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ConnectionOptions } from 'node:tls'
import type { Test } from 'tap'
import { makeCertificate, type TestCertificate } from './certificates.ts'
import { type RawClient, rawTlsClient } from './raw-client.ts'
import { type RecordingUpstream, recordingUpstream } from './recording-upstream.ts'
import { startSidecar, type TestSidecar, type TestSidecarOptions } from './sidecar.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** A sidecar with TLS. */
export interface Secured {
  readonly sidecar: TestSidecar
  readonly upstream: RecordingUpstream
  readonly authority: TestCertificate
  /** Where `cert.pem` and `key.pem` are. */
  readonly directory: string
  /** The flags that name the files. */
  readonly flags: Readonly<Record<string, string>>
  /** Connects as a client that knows the authority. */
  connect(options?: ConnectionOptions): ReturnType<typeof rawTlsClient>
  /** The head of a request with a good token. */
  head(methodAndTarget: string, ...lines: readonly string[]): string
  /** Asks for an object on a connection of its own; the status. */
  get(options?: ConnectionOptions): Promise<number>
  /** Connects and sends a head, and text behind it. */
  request(methodAndTarget: string, lines?: readonly string[], body?: string): Promise<RawClient>
}

/** The names of the server certificates that are made here. */
export const NAMES = ['localhost', '127.0.0.1']

/** Writes a certificate and its key where a sidecar looks for them. */
export function writePair(directory: string, { cert, key }: { cert: string; key: string }): void {
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, 'cert.pem'), cert)
  writeFileSync(join(directory, 'key.pem'), key, { mode: 0o600 })
}

/** Starts all of it. */
export async function startSecured(
  t: Test,
  { settings, ...options }: Omit<TestSidecarOptions, 'upstreamUrl'> = {},
): Promise<Secured> {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const directory = join(await temporaryDirectory(t), 'tls')
  writePair(directory, makeCertificate({ commonName: 'first', names: NAMES, issuer: authority }))
  const flags = {
    'listen-tls-cert-file': join(directory, 'cert.pem'),
    'listen-tls-key-file': join(directory, 'key.pem'),
  }
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, {
    upstreamUrl: upstream.url,
    settings: { 'shutdown-deadline-seconds': '1', ...flags, ...settings },
    ...options,
  })
  const connect: Secured['connect'] = (more) =>
    rawTlsClient(t, sidecar.port, { ca: authority.cert, servername: 'localhost', ...more })
  const head: Secured['head'] = (methodAndTarget, ...lines) =>
    [
      `${methodAndTarget} HTTP/1.1`,
      'Host: storage.example',
      `Authorization: Bearer ${sidecar.token}`,
      ...lines,
      '',
      '',
    ].join('\r\n')
  return {
    sidecar,
    upstream,
    authority,
    directory,
    flags,
    connect,
    head,
    async get(more) {
      const client = await connect(more)
      client.send(head('GET /object', 'Connection: close'))
      const { status } = await client.response()
      client.socket.destroy()
      return status
    },
    async request(methodAndTarget, lines = [], body = '') {
      const client = await connect()
      client.send(head(methodAndTarget, ...lines) + body)
      return client
    },
  }
}
