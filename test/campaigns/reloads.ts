/**
 * Seconds from a change of keys, credentials, revocations or the certificate to its effect on a cached token or a new
 * connection, for each way of writing a file: `npm run reloads -- [ROUNDS]`.
 */
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { get } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { TLSSocket } from 'node:tls'
import { median } from '../../bench/lab.ts'
import { makeCertificate } from '../support/certificates.ts'
import { makeKey } from '../support/keys.ts'
import { serve } from '../support/program.ts'
import { mintToken } from '../support/tokens.ts'
import { WAYS_OF_WRITING } from '../support/ways-of-writing.ts'

const rounds = 2 * Math.ceil(Number(process.argv[2] ?? 50) / 2) // even: a good version is the last
const [first, second] = [await makeKey('ES256', 'first'), await makeKey('ES256', 'second')]
const token = await mintToken({ key: first, claims: { sub: 'acme', client_id: 'AK0', jti: 'token-1' } })
const secretHash = `$sha256$${createHash('sha256').update('secret').digest('base64').slice(0, 43)}`
const accounts = (more: object) =>
  JSON.stringify({
    accounts: [{ accountId: 'acme', credentials: [{ accessKey: 'AK0', secretHash, ...more }] }],
  })
const pair = (commonName: string) =>
  Object.values(makeCertificate({ commonName, names: ['localhost'] })).join('')
const keyText = ({ privateJwk }: typeof first) => JSON.stringify({ ...privateJwk, kid: 'first' })

/** The setting, the file's name, and a good and another version of it. */
const SUBJECTS = [
  ['keys-directory', 'first.jwk.json', keyText(first), keyText(second)],
  ['credentials-file', 'credentials.yaml', accounts({}), accounts({ disabled: true })],
  ['revocations-file', 'revocations.yaml', 'revocations: []', 'revocations: [{ jti: token-1 }]'],
  ['listen-tls-cert-file', 'pair.pem', pair('good'), pair('other')],
] as const

/** The status of a check of the token, and the name in the certificate. */
const look = (port: number) =>
  new Promise<string>((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}` }
    const options = { port, host: '127.0.0.1', path: '/v2/auth/token', headers, rejectUnauthorized: false }
    get({ ...options, agent: false }, (res) => {
      const { socket } = res
      const name = socket instanceof TLSSocket ? socket.getPeerCertificate().subject.CN : ''
      res.resume().on('end', () => resolve(`${res.statusCode} ${name}`))
    }).on('error', reject)
  })

for (const [way, write] of Object.entries(WAYS_OF_WRITING)) {
  const root = mkdtempSync(join(tmpdir(), 'reloads-'))
  const directory = (setting: string) => join(root, setting)
  const cleanUps: (() => unknown)[] = [() => rmSync(root, { recursive: true })]
  for (const [setting, name, good] of SUBJECTS) write(directory(setting), name, good)
  const flags = SUBJECTS.map(([setting, name]) => [
    setting,
    join(directory(setting), setting.endsWith('file') ? name : ''),
  ])
  flags.push(['listen-tls-key-file', join(directory('listen-tls-cert-file'), 'pair.pem')])
  const owner = { teardown: (cleanUp: () => unknown) => cleanUps.unshift(cleanUp) }
  const settings = { ...Object.fromEntries(flags), 'upstream-url': 'http://127.0.0.1:9' }
  const { port } = await serve(owner, settings)
  for (const [setting, name, good, other] of SUBJECTS) {
    const seconds: number[] = []
    for (let round = 0; round < rounds; round++) {
      const before = await look(port)
      await sleep(Math.random() * 250) // another moment of the poll
      write(directory(setting), name, round % 2 === 0 ? other : good)
      const written = performance.now()
      while ((await look(port)) === before) await sleep(2)
      seconds.push((performance.now() - written) / 1000)
    }
    console.log(
      `${name} ${way}: median ${median(seconds).toFixed(2)} s, worst ${Math.max(...seconds).toFixed(2)} s`,
    )
  }
  for (const cleanUp of cleanUps) await cleanUp()
}
