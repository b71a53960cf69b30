/**
 * Seconds from a change of keys, credentials, revocations or certificates to its enforcement by the running program,
 * for each way of writing the files. Tokens are cached when the change is made.
 *
 *     node --import=ts-blank-space/register bench/reload.ts [--rounds 50] [--only credentials]
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'node:tls'
import { parseArgs } from 'node:util'
import { makeCertificate } from '../test/support/certificates.ts'
import { makeKey } from '../test/support/keys.ts'
import { mintToken } from '../test/support/tokens.ts'
import { median } from './lab.ts'

type Files = Readonly<Record<string, string>>

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '50' }, only: { type: 'string', default: '' } },
})

let versions = 0
const WAYS: Readonly<Record<string, (directory: string, files: Files) => void>> = {
  rewritten(directory, files) {
    for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content)
  },
  renamed(directory, files) {
    for (const [name, content] of Object.entries(files)) {
      writeFileSync(join(directory, `.${name}`), content)
      renameSync(join(directory, `.${name}`), join(directory, name))
    }
  },
  '..data swap'(directory, files) {
    const version = `..${++versions}`
    mkdirSync(join(directory, version))
    WAYS['rewritten']?.(join(directory, version), files)
    symlinkSync(version, join(directory, '..data_tmp'))
    renameSync(join(directory, '..data_tmp'), join(directory, '..data'))
    for (const name of Object.keys(files)) {
      if (!existsSync(join(directory, name))) symlinkSync(join('..data', name), join(directory, name))
    }
  },
}

const [first, second] = [await makeKey('ES256', 'first'), await makeKey('ES256', 'second')]
const token = await mintToken({ key: first, claims: { sub: 'acme', client_id: 'AK0', jti: 'token-1' } })
const jwk = (key: typeof first) => ({ 'first.jwk.json': JSON.stringify({ ...key.privateJwk, kid: 'first' }) })
const secretHash = `$sha256$${createHash('sha256').update('secret').digest('base64').slice(0, 43)}`
const credential = { accessKey: 'AK0', secretHash }
const accounts = (more: object) => ({
  'credentials.yaml': JSON.stringify({
    accounts: [{ accountId: 'acme', credentials: [{ ...credential, ...more }] }],
  }),
})
const pair = (commonName: string) => {
  const { cert, key } = makeCertificate({ commonName, names: ['localhost'] })
  return { 'cert.pem': cert, 'key.pem': key }
}

/** Of each subject the good version and the other one. */
const VERSIONS: Readonly<Record<string, readonly [Files, Files]>> = {
  keys: [jwk(first), jwk(second)],
  credentials: [accounts({}), accounts({ disabled: true })],
  revocations: [
    { 'revocations.yaml': 'revocations: []\n' },
    { 'revocations.yaml': 'revocations:\n- jti: token-1\n' },
  ],
  certificates: [pair('good'), pair('other')],
}

/** Starts the program on files written in one way. Resolves with its port. */
async function start(directory: (subject: string) => string): Promise<[ChildProcess, number]> {
  const settings = {
    'keys-directory': directory('keys'),
    'credentials-file': join(directory('credentials'), 'credentials.yaml'),
    'revocations-file': join(directory('revocations'), 'revocations.yaml'),
    'listen-tls-cert-file': join(directory('certificates'), 'cert.pem'),
    'listen-tls-key-file': join(directory('certificates'), 'key.pem'),
    'listen-port': '0',
    'admin-port': '0',
    'upstream-url': 'http://127.0.0.1:9',
  }
  const flags = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  const args = ['--import=ts-blank-space/register', 'src/main.ts', 'serve', ...flags]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  for await (const chunk of child.stdout.setEncoding('utf8')) {
    output += chunk
    const line = output.split('\n').find((line) => /"listening".*data|data.*"listening"/.test(line))
    if (line !== undefined) return [child, Number(JSON.parse(line).port)]
  }
  throw new Error(`the program ended: ${output}`)
}

const agent = new Agent({ keepAlive: true, rejectUnauthorized: false })

async function isTokenGood(port: number): Promise<boolean> {
  const headers = { authorization: `Bearer ${token}` }
  const sent = request({ port, host: '127.0.0.1', path: '/v2/auth/token', headers, agent }).end()
  const [response] = await once(sent, 'response')
  await text(response)
  return response.statusCode === 200
}

async function isCertificateGood(port: number): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const { subject } = socket.getPeerCertificate()
  socket.destroy()
  return subject.CN === 'good'
}

console.log('| files | written | median s | worst s |\n|---|---|---|---|')
for (const [way, write] of Object.entries(WAYS)) {
  const root = mkdtempSync(join(tmpdir(), 'reload-'))
  const directory = (subject: string) => join(root, subject)
  for (const [subject, [good]] of Object.entries(VERSIONS)) {
    mkdirSync(directory(subject))
    write(directory(subject), good)
  }
  const [child, port] = await start(directory)
  for (const [subject, [good, other]] of Object.entries(VERSIONS)) {
    if (!subject.includes(values.only)) continue
    const isGood = subject === 'certificates' ? isCertificateGood : isTokenGood
    const seconds: number[] = []
    for (let round = 0; round < Number(values.rounds); round++) {
      await isGood(port) // the token is cached
      await sleep(Math.random() * 250) // another moment of the poll
      write(directory(subject), round % 2 === 0 ? other : good)
      const written = performance.now()
      while ((await isGood(port)) !== (round % 2 === 1)) await sleep(2)
      seconds.push((performance.now() - written) / 1000)
    }
    if (!(await isGood(port))) write(directory(subject), good)
    const cells = [median(seconds), Math.max(...seconds)].map((value) => value.toFixed(3))
    console.log(`| ${[subject, way, ...cells].join(' | ')} |`)
  }
  child.kill('SIGKILL')
  rmSync(root, { recursive: true })
}
agent.destroy()
