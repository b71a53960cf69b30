/**
 * Keys, a credential and tokens for a run, made anew each time.
 *
 * Keys of all measured algorithms lie in one directory, ES256 signs; the credential's secret is one that the program
 * generated. Tokens are minted here, as a login for each of 12,000 would take longer than the measurement.
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { createHmac, createPrivateKey, createPublicKey, type KeyObject, randomBytes, sign } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Lab } from './lab.ts'

/** The built program. */
export const sidecarMain = join(import.meta.dirname, '../../dist/main.js')

/** Algorithms that are measured. */
export const ALGORITHMS = ['ES256', 'EdDSA', 'RS256', 'HS256'] as const
export type Algorithm = (typeof ALGORITHMS)[number]

/** How a minted token differs from a good one. */
export interface MintOptions {
  /** Seconds from now; negative for a token that has expired. */
  readonly expiresIn?: number
  readonly kid?: string
}

/** What a sidecar and its peers trust. */
export interface Trust {
  readonly login: { readonly accountId: string; readonly accessKey: string; readonly secret: string }
  /** Flags of `serve` that name keys and credentials. */
  readonly flags: readonly string[]
  /** A token like those a login gives; no two are alike. */
  mint(alg: Algorithm, options?: MintOptions): string
  /** The file a verifier needs: the public key as PEM, or the shared secret as text. */
  keyFile(alg: Algorithm): string
}

/** Makes a key of each algorithm and a credential, with the program's own commands where it has one. */
export function makeTrust({ directory }: Pick<Lab, 'directory'>): Trust {
  const command = (...args: string[]) => runCommand(directory, args)
  for (const alg of ['ES256', 'EdDSA', 'RS256']) {
    command('keys', 'add', '--directory', 'keys', '--alg', alg, '--kid', alg)
  }
  // HAProxy takes a shared secret as text only, so this one is text.
  const shared = randomBytes(32).toString('base64url')
  const k = Buffer.from(shared).toString('base64url')
  const file = join(directory, 'keys/HS256.jwk.json')
  writeFileSync(file, JSON.stringify({ kty: 'oct', kid: 'HS256', alg: 'HS256', k }), { mode: 0o600 })
  command('keys', 'activate', '--directory', 'keys', 'ES256')
  const login = parsedLogin(command('credentials', 'add', '--file', 'credentials.yaml', '--account', 'bench'))

  const keys = new Map<Algorithm, KeyObject>()
  for (const alg of ['ES256', 'EdDSA', 'RS256'] as const) {
    const jwk = JSON.parse(readFileSync(join(directory, `keys/${alg}.jwk.json`), 'utf8'))
    const key = createPrivateKey({ key: jwk, format: 'jwk' })
    keys.set(alg, key)
    const pem = createPublicKey(key).export({ type: 'spki', format: 'pem' })
    writeFileSync(join(directory, `${alg}.key`), pem)
  }
  writeFileSync(join(directory, 'HS256.key'), shared, { mode: 0o600 })

  return {
    login,
    flags: ['--keys-directory', 'keys', '--credentials-file', 'credentials.yaml'],
    keyFile: (alg) => join(directory, `${alg}.key`),
    mint(alg, { expiresIn = 3600, kid = alg } = {}) {
      const exp = Math.floor(Date.now() / 1000) + expiresIn
      const claims = {
        client_id: login.accessKey,
        iss: 'storage-account-api',
        aud: 'storage-api',
        sub: login.accountId,
        jti: randomBytes(16).toString('hex'),
        iat: exp - 3600,
        exp,
      }
      const input = `${segment({ alg, kid, typ: 'at+jwt' })}.${segment(claims)}`
      return `${input}.${signature(alg, input, keys.get(alg) ?? shared).toString('base64url')}`
    },
  }
}

function signature(alg: Algorithm, input: string, key: KeyObject | string): Buffer {
  if (typeof key === 'string') return createHmac('sha256', key).update(input).digest()
  const hash = alg === 'EdDSA' ? null : 'sha256'
  return sign(hash, Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' })
}

const segment = (content: object) => Buffer.from(JSON.stringify(content)).toString('base64url')

/** Runs one command of the program in the directory; returns what it printed. */
export function runCommand(cwd: string, args: readonly string[], input?: string): string {
  const options = { cwd, encoding: 'utf8' as const, ...(input !== undefined && { input }) }
  const { status, stdout, stderr } = spawnSync(process.execPath, [sidecarMain, ...args], options)
  if (status !== 0) throw new Error(`${args[0]} ${args[1]}: ${stderr}`)
  return stdout
}

/** What `credentials add` printed. */
export function parsedLogin(output: string): Trust['login'] {
  const { accountId, accessKey, secret } = JSON.parse(output)
  return { accountId, accessKey, secret }
}
