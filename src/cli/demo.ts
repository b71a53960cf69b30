/**
 * `demo`: runs the sidecar in front of a small storage API until a signal stops it.
 * All files are in `.sidecar/`. Each start replaces keys, credential and settings, because only the hash
 * of the secret is stored. Stored objects stay.
 */
import { once } from 'node:events'
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { stringify } from 'yaml'
import { NotDone } from '../base/result.ts'
import { fileEditors } from '../credentials/editor.ts'
import { generateSecret, hashSecret } from '../credentials/secret-hash.ts'
import { addKey } from '../keys/key-changes.ts'
import type { ListenAddresses } from '../life-cycle.ts'
import { type CommandIo, integerIn, UsageFailure } from './command-io.ts'
import { configFromFlags } from './config.ts'
import { startStorageApi } from './demo-storage.ts'
import { createSidecar, type ProcessContext } from './serve.ts'

type Ports = Readonly<Record<'port' | 'adminPort', number>>

export function demoCommand(io: CommandIo, serving: ProcessContext): Command {
  const description = 'run the sidecar in front of an embedded storage API, and print curl lines that try it'
  const parsePort = integerIn(0, 65535)
  return io
    .command('demo', description, 'storage-auth-sidecar demo --port 9080 --admin-port 9081')
    .option('--port <port>', 'data port on 127.0.0.1; 0: any free one', parsePort, 8080)
    .option('--admin-port <port>', 'admin port on 127.0.0.1; 0: any free one', parsePort, 8081)
    .action((ports: Ports) => runDemo(io, serving, ports))
}

async function runDemo(io: CommandIo, serving: ProcessContext, ports: Ports): Promise<void> {
  if (ports.port !== 0 && ports.port === ports.adminPort) {
    throw new UsageFailure('the ports must differ')
  }
  // Ports are checked before files are replaced: a demo that already runs in this directory keeps its key.
  await expectFree(ports.port, '--port')
  await expectFree(ports.adminPort, '--admin-port')
  const directory = resolve('.sidecar')
  const stop = serving.signals.listen()
  const onError = (error: unknown) => io.warn(`storage API: ${error}`)
  const storageUrl = await startStorageApi(join(directory, 'objects'), onError)
  const workspace = await prepareWorkspace(io, directory, ports, storageUrl)
  // SIDECAR_ variables of the environment are ignored: they are meant for another sidecar.
  const loaded = configFromFlags({ config: workspace.configFile }, { env: {} })
  const app = await createSidecar(loaded, serving)
  io.print(guide(workspace, await app.start()))
  await stop
  await app.stop()
}

async function expectFree(port: number, flag: string): Promise<void> {
  const probe = createServer().listen(port, '127.0.0.1')
  await once(probe, 'listening').catch(({ code }: NodeJS.ErrnoException) => {
    const why = code === 'EADDRINUSE' ? 'is in use' : `cannot be listened on (${code})`
    throw new NotDone(`port ${port} ${why}; choose another with ${flag} (0: any free one)`)
  })
  await new Promise((resolve) => probe.close(resolve))
}

async function prepareWorkspace(io: CommandIo, directory: string, ports: Ports, upstreamUrl: string) {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await chmod(directory, 0o700)
  const pathOf = (name: string) => join(directory, name)
  const keys = pathOf('keys')
  const credentialsFile = pathOf('credentials.yaml')
  const configFile = pathOf('sidecar.yaml')
  const sampleFile = pathOf('hello.txt')
  for (const path of [keys, credentialsFile, configFile, sampleFile]) {
    await rm(path, { recursive: true, force: true })
  }
  io.unwrap(await addKey({ directory: keys, alg: 'ES256', now: Date.now }))
  const login = { accountId: 'demo', accessKey: 'demo-key', secret: generateSecret() }
  const { secret, ...name } = login
  const { credentials } = fileEditors(credentialsFile)
  io.unwrap(await credentials.add({ ...name, secretHash: await hashSecret(secret, 'sha256') }))
  const settings = {
    listen: { host: '127.0.0.1', port: ports.port },
    admin: { host: '127.0.0.1', port: ports.adminPort },
    upstreams: [{ prefix: '/', url: upstreamUrl }],
    keys: { directory: keys },
    credentials: { file: credentialsFile },
    links: { enabled: true },
    scopes: { hosts: ['*'] }, // the demo's storage does not choose by Host
    shutdown: { lameDuckSeconds: 0, deadlineSeconds: 5 },
    log: { level: 'warn', access: 'off' }, // the terminal is for the lines to paste
  }
  await writeFile(configFile, stringify(settings), { mode: 0o600 })
  await writeFile(sampleFile, 'Hello, storage.\n', { mode: 0o600 })
  return { configFile, credentialsFile, sampleFile, login }
}

type Workspace = Awaited<ReturnType<typeof prepareWorkspace>>

/** The comments hold no character that a shell interprets: an interactive zsh runs comments as commands. */
export function guide(
  { login, sampleFile, credentialsFile }: Omit<Workspace, 'configFile'>,
  { data, admin }: ListenAddresses,
): string {
  const url = (listener: AddressInfo | undefined) => `http://${listener?.address}:${listener?.port}`
  const quoted = (text: string) => `'${text.replaceAll("'", String.raw`'\''`)}'`
  const sidecar = url(data)
  const json = "-H 'Content-Type: application/json'"
  const token = '-H "Authorization: Bearer $TOKEN"'
  const only = (member: string) => String.raw`sed 's/.*"${member}":"\([^"]*\)".*/\1/'`
  const change = (command: string) => {
    const program = quoted(process.argv[1] ?? 'dist/main.js')
    const names = `--account ${quoted(login.accountId)} --access-key ${quoted(login.accessKey)}`
    return `node ${program} credentials ${command} --file ${quoted(credentialsFile)} ${names} && sleep 1`
  }
  return `
# The sidecar and its storage API are ready. Paste these lines into another terminal.
# Ctrl-C in this one stops both.

# 1. Get a token, valid for 24 hours
TOKEN=$(curl -sS ${json} -d ${quoted(JSON.stringify(login))} ${sidecar}/v2/auth/token | ${only('token')})

# 2. Put a file
curl -sS ${token} -T ${quoted(sampleFile)} ${sidecar}/greetings/hello.txt

# 3. Get it back
curl -sS ${token} ${sidecar}/greetings/hello.txt

# 4. Ask how many seconds the token has left
curl -sS -w '\\n' ${token} ${sidecar}/v2/auth/token

# 5. Be refused without a token
curl -sS -i -w '\\n' ${sidecar}/greetings/hello.txt

# 6. Share the file for an hour with a link, which needs no token
LINK=$(curl -sS ${token} ${json} -d '{"method":"GET","target":"/greetings/hello.txt"}' ${sidecar}/v2/auth/links | ${only('url')})
curl -sS "${sidecar}$LINK"

# 7. Disable the credential, and see its token and links refused within a second
${change('disable')} && curl -sS -w '\\n' ${token} ${sidecar}/greetings/hello.txt

# 8. Enable it again, and the same token passes
${change('enable')} && curl -sS ${token} ${sidecar}/greetings/hello.txt

# 9. See what the sidecar counted
curl -sS ${url(admin)}/metrics | grep '^auth_sidecar_token'
# or open the status page in a browser: ${url(admin)}/`
}
