/**
 * The keys, the credential and the tokens of a run, created anew each time. Keys and credential come from the
 * program's own commands; tokens are signed here, because 12,000 logins take longer than the measurement.
 */
import { spawnSync } from 'node:child_process'
import { createPrivateKey, createPublicKey, randomBytes, sign } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** The built program. */
export const MAIN = join(import.meta.dirname, '../dist/main.js')

export const ISSUER = 'storage-account-api'
export const AUDIENCE = 'storage-api'

export interface Trust {
  readonly login: { readonly accountId: string; readonly accessKey: string; readonly secret: string }
  /** Flags of `serve` that name keys and credentials. */
  readonly flags: readonly string[]
  /** The public key as a JWK Set, and as a PEM file. */
  readonly jwks: string
  readonly pemFile: string
  /** Signs a new token with ES256; `expiresIn` is in seconds from now. */
  mint(options?: { readonly expiresIn?: number; readonly kid?: string }): string
}

/** Creates keys and a credential in the directory. */
export function createTrust(directory: string): Trust {
  const command = (...args: string[]): string => {
    const options = { cwd: directory, encoding: 'utf8' as const }
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], options)
    if (status !== 0) throw new Error(`${args.slice(0, 2).join(' ')}: ${stderr}`)
    return stdout
  }
  const KID = 'bench'
  command('keys', 'add', '--directory', 'keys', '--alg', 'ES256', '--kid', KID, '--activate')
  const login = JSON.parse(command('credentials', 'add', '--file', 'credentials.yaml', '--account', 'bench'))

  const jwk = JSON.parse(readFileSync(join(directory, `keys/${KID}.jwk.json`), 'utf8'))
  const key = createPrivateKey({ key: jwk, format: 'jwk' })
  const pemFile = join(directory, 'public.pem')
  writeFileSync(pemFile, createPublicKey(key).export({ type: 'spki', format: 'pem' }))
  const { kty, crv, x, y } = jwk
  return {
    login,
    flags: ['--keys-directory', 'keys', '--credentials-file', 'credentials.yaml'],
    jwks: JSON.stringify({ keys: [{ kty, crv, x, y, kid: KID, alg: 'ES256', use: 'sig' }] }),
    pemFile,
    mint({ expiresIn = 3600, kid = KID } = {}) {
      const exp = Math.floor(Date.now() / 1000) + expiresIn
      const who = { sub: login.accountId, client_id: login.accessKey, jti: randomBytes(16).toString('hex') }
      const claims = { iss: ISSUER, aud: AUDIENCE, ...who, iat: exp - 3600, exp }
      const input = `${segment({ alg: 'ES256', kid, typ: 'at+jwt' })}.${segment(claims)}`
      const signature = sign('sha256', Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' })
      return `${input}.${signature.toString('base64url')}`
    },
  }
}

const segment = (content: object) => Buffer.from(JSON.stringify(content)).toString('base64url')

/** A token whose signature belongs to another token of the same key. */
export function forged({ mint }: Trust): string {
  const [token, other] = [mint(), mint()]
  return token.slice(0, token.lastIndexOf('.')) + other.slice(other.lastIndexOf('.'))
}
