/**
 * The demo's directory `.sidecar/` and the lines that it prints. Keys, credential and settings are created at each start,
 * as only the hash of an earlier secret is kept; stored objects stay. Only the owner can read the directory.
 */
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { generateSecret, hashSecret } from '../credentials/secret-hash.ts'
import { addKey } from '../keys/key-changes.ts'
import type { Addresses } from '../ops/life-cycle.ts'

/** The settings file, a small text file to upload, and a login. */
export type Workspace = Awaited<ReturnType<typeof prepareWorkspace>>

/**
 * Writes the files of the demo.
 *
 * @param directory - absolute path
 * @param ports - on loopback; 0: any free one
 * @param upstreamUrl - URL of the storage API
 */
export async function prepareWorkspace(
  directory: string,
  ports: { readonly port: number; readonly adminPort: number },
  upstreamUrl: string,
) {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await chmod(directory, 0o700)
  const keys = join(directory, 'keys')
  await rm(keys, { recursive: true, force: true })
  await addKey({ directory: keys, alg: 'ES256', now: Date.now })

  const write = async (name: string, text: string) => {
    const file = join(directory, name)
    await rm(file, { force: true })
    await writeFile(file, text, { mode: 0o600 })
    return file
  }
  const login = { accountId: 'demo', accessKey: 'demo-key', secret: generateSecret() }
  const { accountId, accessKey, secret } = login
  const credential = { accessKey, secretHash: await hashSecret(secret, 'sha256') }
  const accounts = [{ accountId, credentials: [credential] }]
  const settings = {
    listen: { host: '127.0.0.1', port: ports.port },
    admin: { host: '127.0.0.1', port: ports.adminPort },
    upstreams: [{ prefix: '/', url: upstreamUrl }],
    keys: { directory: keys },
    credentials: { file: await write('credentials.yaml', stringify({ accounts })) },
    shutdown: { lameDuckSeconds: 0, deadlineSeconds: 5 },
    log: { level: 'warn', access: 'off' }, // the terminal is for the lines to paste
  }
  const configFile = await write('sidecar.yaml', stringify(settings))
  return { configFile, sampleFile: await write('hello.txt', 'Hello, storage.\n'), login }
}

/**
 * The lines to paste: comments and complete commands for a POSIX shell with curl. Comments hold no character that a shell
 * interprets: an interactive zsh runs them as commands.
 */
export function guide(
  { login, sampleFile }: Pick<Workspace, 'login' | 'sampleFile'>,
  { data, admin }: Addresses,
): string {
  const url = ({ address, port }: AddressInfo) => `http://${address}:${port}`
  const quoted = (text: string) => `'${text.replaceAll("'", String.raw`'\''`)}'`
  const sidecar = url(data)
  const json = "-H 'Content-Type: application/json'"
  const token = '-H "Authorization: Bearer $TOKEN"'
  const onlyToken = String.raw`sed 's/.*"token":"\([^"]*\)".*/\1/'`
  return `
# The sidecar and its storage API are ready. Paste these lines into another terminal.
# Ctrl-C in this one stops both.

# 1. Get a token, valid for 24 hours
TOKEN=$(curl -sS ${json} -d ${quoted(JSON.stringify(login))} ${sidecar}/v2/auth/token | ${onlyToken})

# 2. Put a file
curl -sS ${token} -H 'Content-Type: text/plain' -T ${quoted(sampleFile)} ${sidecar}/greetings/hello.txt

# 3. Get it back
curl -sS ${token} ${sidecar}/greetings/hello.txt

# 4. List what is there
curl -sS ${token} '${sidecar}/?prefix=/greetings/'

# 5. Ask how many seconds the token has left
curl -sS -w '\\n' ${token} ${sidecar}/v2/auth/token

# 6. Be refused without a token
curl -sS -i -w '\\n' ${sidecar}/greetings/hello.txt

# 7. See what the sidecar counted
curl -sS ${url(admin)}/metrics | grep '^auth_sidecar_token'
`
}
