/**
 * What the demo keeps on disk: the directory `.sidecar/`.
 *
 * In: the directory, and where the sidecar is to listen and to forward. Out: a signing key, one credential, a
 * settings file that names them, and a file to upload; all made anew, because the secret of an earlier
 * credential cannot be told again: only its hash is kept. Objects stored before stay. Nobody but the owner can
 * look into the directory.
 *
 * @module
 */
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { generateSecret, hashSecret } from '../credentials/secret-hash.ts'
import type { Login } from '../credentials/store.ts'
import { addKey } from '../keys/key-changes.ts'

/** The demo's files, and the one secret that nothing else remembers. */
export interface Workspace {
  /** Settings for this sidecar. */
  readonly configFile: string
  /** A small text file to upload. */
  readonly sampleFile: string
  readonly login: Login
}

/** What the workspace is made for. */
export interface WorkspaceOptions {
  /** Absolute path. */
  readonly directory: string
  /** Ports of the data and of the admin listener, on loopback; 0: any free one. */
  readonly port: number
  readonly adminPort: number
  /** URL of the storage API. */
  readonly upstreamUrl: string
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

const LOOPBACK = '127.0.0.1'

/** Makes the directory, or makes it anew. Rejects with what the file system says. */
export async function prepareWorkspace(options: WorkspaceOptions): Promise<Workspace> {
  const { directory, port, adminPort, upstreamUrl, now } = options
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await chmod(directory, 0o700) // it may have been there before

  const keys = join(directory, 'keys')
  await rm(keys, { recursive: true, force: true })
  await addKey({ directory: keys, alg: 'ES256', now })

  const login = { accountId: 'demo', accessKey: 'demo-key', secret: generateSecret() }
  const { accountId, accessKey, secret } = login
  const credential = { accessKey, secretHash: await hashSecret(secret, 'sha256') }
  const credentials = await write(directory, 'credentials.yaml', {
    accounts: [{ accountId, credentials: [credential] }],
  })
  const configFile = await write(directory, 'sidecar.yaml', {
    listen: { host: LOOPBACK, port },
    admin: { host: LOOPBACK, port: adminPort },
    upstreams: [{ prefix: '/', url: upstreamUrl }],
    keys: { directory: keys },
    credentials: { file: credentials },
    shutdown: { lameDuckSeconds: 0, deadlineSeconds: 5 }, // nobody routes traffic away from a demo
    log: { level: 'warn', access: 'off' }, // the terminal is for the lines to paste
  })
  const sampleFile = join(directory, 'hello.txt')
  await writeFile(sampleFile, 'Hello, storage.\n', { mode: 0o600 })
  return { configFile, sampleFile, login }
}

/** Writes one YAML file that only its owner can read, and says where. */
async function write(directory: string, name: string, value: unknown): Promise<string> {
  const file = join(directory, name)
  await rm(file, { force: true })
  await writeFile(file, `# Written by the demo at each start.\n${stringify(value)}`, { mode: 0o600 })
  return file
}
