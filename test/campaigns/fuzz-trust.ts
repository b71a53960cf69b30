/**
 * Keys, credentials and tokens for a campaign.
 *
 * In: how long the campaign runs. Out: a directory with everything that a sidecar is configured with, and what a client
 * can send: good tokens of several accounts, bad ones of every kind, logins.
 *
 * @module
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { generateSecret, hashSecret } from '../../src/credentials/secret-hash.ts'
import { makeKey, writeKey } from '../support/keys.ts'
import { goodClaims, type MintOptions, mintToken, respellings } from '../support/tokens.ts'
import type { ExpectedIdentity, KnownTrust } from './expected-requests.ts'
import type { Shelf } from './fuzz-requests.ts'

/** What a campaign has. */
export interface CampaignTrust {
  readonly known: KnownTrust
  readonly shelf: Shelf
  /** Flags for the sidecar, without their dashes. */
  readonly flags: Readonly<Record<string, string>>
  /** Removes the directory. */
  remove(): Promise<void>
}

/** Accounts whose names must survive the way into a header. */
const ACCOUNTS = ['acme', 'Ünïcode 账户', 'a b%20c', '100%', 'x.y_z"\\', '🦊']
const TOKENS_PER_ACCOUNT = 3

/** Makes keys, credentials and tokens that stay good for so many seconds, and an hour more. */
export async function prepareTrust(seconds: number): Promise<CampaignTrust> {
  const directory = await mkdtemp(join(tmpdir(), 'sidecar-campaign-'))
  const key = await makeKey('ES256', 'campaign')
  writeKey(directory, key.privateJwk)
  const logins = ACCOUNTS.map((accountId, at) => ({
    accountId,
    accessKey: `AK ${at}`,
    secret: generateSecret(),
  }))
  const gone = { accountId: 'gone', accessKey: 'AK', secret: generateSecret() }
  const accounts = await Promise.all(
    [...logins, gone].map(async ({ accountId, accessKey, secret }) => ({
      accountId,
      credentials: [
        { accessKey, secretHash: await hashSecret(secret, 'sha256'), disabled: accountId === gone.accountId },
      ],
    })),
  )
  const file = join(directory, 'credentials.yaml')
  await writeFile(file, stringify({ accounts }, { lineWidth: 0 }), { mode: 0o600 })

  const lifetimeSeconds = Math.min(seconds + 3600, 86_400)
  const mint = (claims: object, options: Partial<MintOptions> = {}) =>
    mintToken({ key, lifetimeSeconds, ...options, claims: { ...claims } })
  const valid = new Map<string, ExpectedIdentity>()
  for (const { accountId, accessKey } of logins) {
    for (let count = 0; count < TOKENS_PER_ACCOUNT; count++) {
      const tokenId = `token ${valid.size}`
      const { exp } = goodClaims({ lifetimeSeconds })
      valid.set(await mint({ sub: accountId, client_id: accessKey, jti: tokenId, exp }), {
        accountId,
        accessKey,
        tokenId,
        expiresAt: exp,
      })
    }
  }
  const acme = { sub: 'acme', client_id: 'AK 0' }
  const past = { now: Date.now() - 7_200_000, lifetimeSeconds: 3600 }
  const expired = [await mint(acme, past), await mint({ ...acme, jti: 'other' }, past)]
  const stranger = await makeKey('ES256', 'stranger')
  const [first = ''] = valid.keys()
  const bad = [
    ...expired,
    await mint(acme, { key: stranger }),
    await mint(acme, { key: { ...stranger, kid: key.kid } }),
    await mint(acme, { header: { alg: 'none' }, signature: '' }),
    await mint({ ...acme, aud: 'other' }),
    await mint({ ...acme, exp: undefined }),
    await mint({ sub: gone.accountId, client_id: gone.accessKey }),
    await mint({ sub: 'nobody', client_id: 'AK' }),
    ...respellings(first).map(([, token]) => token),
    first.slice(0, -3),
    `${first.slice(0, -10)}AAAAAAAAAA`,
    `${'a'.repeat(9000)}.b.c`,
    'garbage',
    '..',
  ]
  return {
    known: { valid, expired: new Set(expired), logins },
    shelf: { good: [...valid.keys()], bad, logins },
    flags: { 'keys-directory': directory, 'credentials-file': file },
    remove: () => rm(directory, { recursive: true, force: true }),
  }
}
