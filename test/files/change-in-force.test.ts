import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { versionOf } from '../../src/files/files-version.ts'
import { followFiles } from '../../src/files/follow-files.ts'
import { loadKeyRing } from '../../src/keys/key-directory.ts'
import type { KeyRing } from '../../src/keys/key-ring.ts'
import type { Load } from '../../src/reload/loaded.ts'
import { createTokenCache } from '../../src/token/cache.ts'
import { createRevocations } from '../../src/token/revocations.ts'
import { createRevocationsLoader } from '../../src/token/revocations-file.ts'
import { createVerifier } from '../../src/token/verify.ts'
import { eventually } from '../support/eventually.ts'
import { makeKey, makeKeyDirectory, writeKey } from '../support/keys.ts'
import { AUDIENCE, ISSUER, mintToken } from '../support/tokens.ts'

/** Checks tokens as a sidecar does, with keys and revocations that follow their files, and remembers them. */
async function checkTokens(t: Parameters<typeof makeKeyDirectory>[0] & { teardown(stop: () => void): void }) {
  const key = await makeKeyDirectory(t)
  writeKey(key.directory, (await makeKey('EdDSA', 'other')).publicJwk)
  const file = join(key.directory, '.revocations.yaml')
  writeFileSync(file, 'revocations: []')
  const change = {
    log: { info: () => {}, warn: () => {}, error: () => {} },
    now: Date.now,
    onChange: () => cache.clear(),
  }
  const loadKeys: Load<KeyRing> = async () => {
    const loaded = await loadKeyRing(key)
    return loaded.ok ? { ...loaded, value: loaded.ring } : loaded
  }
  const keys = followFiles({
    ...change,
    subject: 'keys',
    paths: [key.directory],
    version: await versionOf([key.directory]),
    initial: key.ring,
    load: loadKeys,
  })
  const revocations = followFiles({
    ...change,
    subject: 'revocations',
    paths: [file],
    version: await versionOf([file]),
    initial: createRevocations([]),
    load: createRevocationsLoader({ file, required: true }),
  })
  t.teardown(keys.stop)
  t.teardown(revocations.stop)
  const verify = createVerifier({
    keys: keys.current,
    isRevoked: (token) => revocations.current().isRevoked(token),
    issuer: ISSUER,
    audience: AUDIENCE,
    maxLifetimeSeconds: 86_400,
    clockToleranceSeconds: 0,
    now: Date.now,
  })
  const cache = createTokenCache({ verify, maxTokens: 100, maxAgeSeconds: 300, now: Date.now })
  /** Seconds until a token that was accepted is refused, and why. */
  const secondsUntilRefused = async (token: string) => {
    const started = performance.now()
    let verdict = await cache.verify(token)
    await eventually(async () => {
      verdict = await cache.verify(token)
      return !verdict.ok
    }, 'a refusal')
    return { seconds: (performance.now() - started) / 1000, reason: verdict.ok ? 'ok' : verdict.reason }
  }
  return { key, file, cache, secondsUntilRefused }
}

t.test('a revocation ends a remembered token within a second, and no other one', async (t) => {
  const { key, file, cache, secondsUntilRefused } = await checkTokens(t)
  const revoked = await mintToken({ key, claims: { jti: 'token-1' } })
  const other = await mintToken({ key, claims: { jti: 'token-2' } })
  for (const token of [revoked, other]) t.match(await cache.verify(token), { ok: true })
  t.match(await cache.verify(revoked), { ok: true })
  t.equal(cache.hits, 1, 'it is remembered')
  writeFileSync(`${file}.new`, 'revocations:\n- jti: token-1\n')
  renameSync(`${file}.new`, file)
  const { seconds, reason } = await secondsUntilRefused(revoked)
  t.equal(reason, 'revoked')
  t.ok(seconds < 1, `after ${seconds} s`)
  t.match(await cache.verify(other), { ok: true })
})

t.test('a key that is removed ends its remembered tokens within a second', async (t) => {
  const { key, cache, secondsUntilRefused } = await checkTokens(t)
  const token = await mintToken({ key })
  t.match(await cache.verify(token), { ok: true })
  rmSync(`${key.directory}/${key.kid}.jwk.json`)
  const { seconds, reason } = await secondsUntilRefused(token)
  t.equal(reason, 'unknown_key')
  t.ok(seconds < 1, `after ${seconds} s`)
})
