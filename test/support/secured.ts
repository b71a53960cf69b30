/** A sidecar that speaks TLS to its clients, in front of a recording upstream. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ConnectionOptions } from 'node:tls'
import type { Test } from 'tap'
import { makeCertificate, type TestCertificate } from './certificates.ts'
import { rawTlsClient } from './raw-client.ts'
import { type Setup, type SetupOptions, startSetup } from './setup.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** A setup whose clients speak TLS. */
export interface Secured extends Setup {
  readonly authority: TestCertificate
  /** Where `cert.pem` and `key.pem` are. */
  readonly directory: string
  /** The flags that name the files. */
  readonly flags: Readonly<Record<string, string>>
  /** Connects as a client that knows the authority. */
  connect(options?: ConnectionOptions): ReturnType<typeof rawTlsClient>
  /** Asks for an object on a connection of its own; the status. */
  get(options?: ConnectionOptions): Promise<number>
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
  { settings, ...options }: Omit<SetupOptions, 'tls'> = {},
): Promise<Secured> {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const directory = join(await temporaryDirectory(t), 'tls')
  writePair(directory, makeCertificate({ commonName: 'first', names: NAMES, issuer: authority }))
  const flags = {
    'listen-tls-cert-file': join(directory, 'cert.pem'),
    'listen-tls-key-file': join(directory, 'key.pem'),
  }
  const tls = { ca: authority.cert, servername: 'localhost' }
  const setup = await startSetup(t, { ...options, settings: { ...flags, ...settings }, tls })
  const connect: Secured['connect'] = (more) => rawTlsClient(t, setup.sidecar.port, { ...tls, ...more })
  return {
    ...setup,
    authority,
    directory,
    flags,
    connect,
    async get(more) {
      const client = await connect(more)
      client.send(setup.head('GET /object', 'Connection: close'))
      const { status } = await client.response()
      client.socket.destroy()
      return status
    },
  }
}
