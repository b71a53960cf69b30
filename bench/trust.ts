/**
 * The keys, credentials and tokens of a benchmark or a campaign, created anew each time.
 * Keys and credential come from the program's own commands; tokens are signed here, because
 * 12,000 logins take longer than the measurement.
 */
import { spawnSync } from 'node:child_process'
import { createPrivateKey, createPublicKey, type KeyObject, randomBytes, sign } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const KID = 'bench'

/** The built program. */
export const MAIN = join(import.meta.dirname, '../dist/main.js')

export const ISSUER = 'storage-account-api'
export const AUDIENCE = 'storage-api'

export type Login = Readonly<Record<'accountId' | 'accessKey' | 'secret', string>>

export interface Trust {
  readonly login: Login
  /** Flags of `serve` that name keys and credentials. */
  readonly flags: readonly string[]
  /** The public key as a JWK Set, and as a PEM file. */
  readonly jwks: string
  readonly pemFile: string
  /** Signs a new ES256 token that is valid for a day. Claims, header parameters and key replace its own. */
  mint(claims?: object, header?: object, signer?: KeyObject): string
  /** Adds a credential. */
  addLogin(account: string): Login
}

/** Creates keys and a credential in the directory. */
export function createTrust(directory: string): Trust {
  const command = (...args: string[]): string => {
    const options = { cwd: directory, encoding: 'utf8' as const }
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], options)
    if (status !== 0) {
      throw new Error(`${args.slice(0, 2).join(' ')}: ${stderr}`)
    }
    return stdout
  }
  command('keys', 'add', '--directory', 'keys', '--alg', 'ES256', '--kid', KID, '--activate')
  const addLogin = (account: string): Login =>
    JSON.parse(command('credentials', 'add', '--file', 'credentials.yaml', '--account', account))
  const login = addLogin('bench')

  const jwk = JSON.parse(readFileSync(join(directory, `keys/${KID}.jwk.json`), 'utf8'))
  const key = createPrivateKey({ key: jwk, format: 'jwk' })
  const pemFile = join(directory, 'public.pem')
  writeFileSync(pemFile, createPublicKey(key).export({ type: 'spki', format: 'pem' }))
  const { kty, crv, x, y } = jwk
  return {
    login,
    flags: [
      '--keys-directory',
      join(directory, 'keys'),
      '--credentials-file',
      join(directory, 'credentials.yaml'),
    ],
    jwks: JSON.stringify({ keys: [{ kty, crv, x, y, kid: KID, alg: 'ES256', use: 'sig' }] }),
    pemFile,
    addLogin,
    mint(claims = {}, header = {}, signer = key) {
      const now = Math.floor(Date.now() / 1000)
      const payload = {
        iss: ISSUER,
        aud: AUDIENCE,
        sub: login.accountId,
        client_id: login.accessKey,
        jti: randomBytes(16).toString('hex'),
        iat: now - 60,
        exp: now + 86_000,
        ...claims,
      }
      const input = `${segment({ alg: 'ES256', kid: KID, typ: 'at+jwt', ...header })}.${segment(payload)}`
      const signature = sign('sha256', Buffer.from(input), { key: signer, dsaEncoding: 'ieee-p1363' })
      return `${input}.${signature.toString('base64url')}`
    },
  }
}

const segment = (content: object) => Buffer.from(JSON.stringify(content)).toString('base64url')

/** A token that has expired an hour ago. */
export function expiredToken({ mint }: Trust): string {
  const now = Math.floor(Date.now() / 1000)
  return mint({ iat: now - 7200, exp: now - 3600 })
}

/** A token whose signature belongs to another token of the same key. */
export function forgedToken({ mint }: Trust): string {
  const token = mint()
  const other = mint()
  return token.slice(0, token.lastIndexOf('.')) + other.slice(other.lastIndexOf('.'))
}
