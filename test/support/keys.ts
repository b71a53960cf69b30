/**
 * Keys for tests: generated once per process and algorithm, and written into directories that go away with
 * the test.
 */
import { writeFileSync } from 'node:fs'
import { exportJWK, generateKeyPair, type JWK } from 'jose'
import type { Test } from 'tap'
import { PRIVATE_MEMBERS } from '../../src/keys/jwk.ts'
import { loadKeyRing } from '../../src/keys/key-directory.ts'
import type { Algorithm, KeyRing } from '../../src/keys/key-ring.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** A key as a test wants it. */
export interface TestKey {
  readonly kid: string
  readonly alg: Algorithm
  /** The complete JWK, as in a key file. */
  readonly privateJwk: JWK
  /** The public JWK; for HS256 the same as the private one, since there is no other. */
  readonly publicJwk: JWK
}

const made = new Map<string, Promise<JWK>>()

/** Makes a key. Two keys of one algorithm differ when their kids do; the same kid gives the same key. */
export async function makeKey(alg: Algorithm = 'ES256', kid = `${alg.toLowerCase()}-key`): Promise<TestKey> {
  const name = `${alg} ${kid}`
  const jwk = made.get(name) ?? generate(alg)
  made.set(name, jwk)
  const privateJwk: JWK = { kid, alg, use: 'sig', ...(await jwk) }
  const isPublic = ([member]: [string, unknown]) => alg === 'HS256' || !PRIVATE_MEMBERS.has(member)
  return { kid, alg, privateJwk, publicJwk: Object.fromEntries(Object.entries(privateJwk).filter(isPublic)) }
}

async function generate(alg: Algorithm): Promise<JWK> {
  if (alg === 'HS256') {
    return { kty: 'oct', k: crypto.getRandomValues(Buffer.alloc(32)).toString('base64url') }
  }
  return exportJWK((await generateKeyPair(alg, { extractable: true })).privateKey)
}

/** A directory that holds one private key, loaded. */
export interface TestKeyDirectory extends TestKey {
  readonly directory: string
  readonly ring: KeyRing
}

/** Writes a key directory with one private key of this algorithm (default ES256) and loads it. */
export async function makeKeyDirectory(
  t: Pick<Test, 'teardown'>,
  { alg, kid }: { readonly alg?: Algorithm | undefined; readonly kid?: string } = {},
): Promise<TestKeyDirectory> {
  const key = await makeKey(alg, kid)
  const directory = await temporaryDirectory(t)
  writeKey(directory, key.privateJwk)
  return { ...key, directory, ring: await ringOf(directory) }
}

/** Writes a key file, mode 0600, named by the kid inside it or otherwise. */
export function writeKey(directory: string, jwk: JWK, kid = String(jwk.kid)): void {
  writeFileSync(`${directory}/${kid}.jwk.json`, JSON.stringify(jwk), { mode: 0o600 })
}

/** Loads a directory that is known to be good. */
export async function ringOf(directory: string): Promise<KeyRing> {
  const loaded = await loadKeyRing(directory)
  if (!loaded.ok) {
    throw new Error(loaded.problems.join('\n'))
  }
  return loaded.value
}
