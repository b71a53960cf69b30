/** `token issue|inspect`: mints a token that a sidecar with these settings accepts, or explains a token. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { type AuthData, openAuthData } from '../auth/auth-data.ts'
import { printable } from '../base/log.ts'
import { NotDone, notLoaded } from '../base/result.ts'
import type { Config } from '../config/config.ts'
import type { LoadedConfig } from '../config/load.ts'
import { type CredentialName, isActive } from '../credentials/credential-list.ts'
import { loadKeyRing } from '../keys/key-directory.ts'
import { type Inspection, inspectToken } from '../token/inspect.ts'
import { TokenSigner } from '../token/issue.ts'
import { parseStoredScope } from '../token/scopes.ts'
import { createVerifier } from '../token/verify.ts'
import type { CommandIo, Flags } from './command-io.ts'
import { describe, parseSeconds, UsageFailure } from './command-io.ts'
import { addSettingFlags, configFromFlags, rethrowAsUsage, type SettingFlags } from './config.ts'
import { credentialNameOf, openEditors, parseName } from './credentials.ts'

type InspectFlags = SettingFlags & Flags<never, never, 'json'>
type IssueFlags = InspectFlags & Flags<'account' | 'accessKey'> & { readonly lifetimeSeconds?: number }

/** @param waitMs - how long `inspect` waits for another issuer or a database */
export function tokenCommand(io: CommandIo, waitMs = 5000): Command {
  const group = io.command(
    'token',
    'mint a token, or explain one',
    'storage-auth-sidecar token issue --account acme --access-key backup | storage-auth-sidecar token inspect',
  )

  const issue = describe(
    group.command('issue'),
    'mint a token with the key that signs',
    'storage-auth-sidecar token issue --config sidecar.yaml --account acme --access-key backup',
  )
  addSettingFlags(issue)
    .requiredOption('--account <id>', 'the account identifier', parseName)
    .requiredOption('--access-key <key>', 'the access key', parseName)
    .option('--lifetime-seconds <n>', 'its lifetime (default: token.lifetimeSeconds)', parseSeconds)
    .option('--json', 'print JSON')
    .action((flags: IssueFlags) => issueToken(flags, io))

  const inspect = describe(
    group.command('inspect'),
    'explain a token: verdict, reason, key, claims, time left, revoked or not; exits with 1 when it is refused',
    '# From stdin: arguments can be read by every user of the machine.',
    'printf %s "$TOKEN" | storage-auth-sidecar token inspect --config sidecar.yaml',
    'pbpaste | storage-auth-sidecar token inspect --config sidecar.yaml --json',
  )
  addSettingFlags(inspect)
    .argument('[token]', 'the token (default: read from stdin)')
    .option('--json', 'print JSON')
    .action(async (argument: string | undefined, flags: InspectFlags) => {
      const loaded = configFromFlags(flags, io, { needsUpstream: false })
      const { issuers, revocations } = await loadAuthData(loaded, io, waitMs).catch(rethrowAsUsage(loaded))
      const { isRevoked } = revocations
      const { clockToleranceSeconds } = loaded.config.token
      const verify = createVerifier({ issuers, isRevoked, clockToleranceSeconds, now: io.now })
      const token = (argument ?? (await io.readBytes()).toString()).trim()
      const context = { verify, own: issuers[0], isRevoked, rules: loaded.config, now: io.now }
      const inspection = await inspectToken(token, context)
      const text = flags.json ? JSON.stringify(inspection) : report(inspection)
      io.print(text.split('\n').map(printable).join('\n'))
      if (inspection.reason !== null) {
        throw new NotDone(`the token is refused: ${inspection.reason}`)
      }
    })
  return group
}

async function issueToken(flags: IssueFlags, io: CommandIo): Promise<void> {
  const { config } = configFromFlags(flags, io, { needsUpstream: false })
  const { maxLifetimeSeconds } = config.token
  const { lifetimeSeconds = config.token.lifetimeSeconds } = flags
  if (lifetimeSeconds > maxLifetimeSeconds) {
    throw new UsageFailure(`--lifetime-seconds must be 1 to ${maxLifetimeSeconds} (token.maxLifetimeSeconds)`)
  }
  const name = credentialNameOf(flags)
  const { directory } = config.keys
  if (directory === undefined) {
    throw new UsageFailure('keys.directory is needed: with keys.jwksUrl no tokens are issued')
  }
  const ring = io.unwrap(await loadKeyRing(directory))
  if (ring.signing === undefined) {
    throw new UsageFailure(`${directory}: holds no private key, so it can only verify`)
  }
  const scope = parseStoredScope((await findCredential(name, config, io))?.scope)
  const signer = new TokenSigner(() => ring, config.token, io.now)
  const { token, identity } = await signer.issueToken({ ...name, scope }, lifetimeSeconds)
  const expiresAt = new Date(identity.expiresAtSeconds * 1000).toISOString()
  io.print(flags.json ? JSON.stringify({ token, expirationSec: lifetimeSeconds, expiresAt }) : token)
}

async function findCredential({ accountId, accessKey }: CredentialName, config: Config, io: CommandIo) {
  const { file, postgres } = config.credentials
  const { credentials } = await openEditors({ file, postgresUrlFile: postgres?.urlFile })
  const listed = await credentials.list().catch((error: unknown) => {
    if (error instanceof NotDone) {
      return notLoaded([error.message])
    }
    throw error
  })
  if (!listed.ok) {
    for (const problem of listed.problems) {
      io.warn(`no credential is known, so the token has no scope: ${problem}`)
    }
    return undefined
  }
  const named = listed.value.find((one) => one.accountId === accountId && one.accessKey === accessKey)
  if (named === undefined || !isActive(named, io.now())) {
    io.warn('no active credential has this account and access key: the token is refused')
  }
  return named
}

/** Loads once all data on which the verdict on a token depends. The data stays usable after the stop. */
async function loadAuthData(loaded: LoadedConfig, io: CommandIo, waitMs: number): Promise<AuthData> {
  // A log line has fields and a message, or the message alone.
  const warn = (first: unknown, second?: unknown) => {
    const message = second ?? first
    const { from, database, problem, problems, reason } = Object(first)
    const subject = from ?? database ?? []
    const causes = problems ?? problem ?? reason ?? []
    io.warn([message, subject, causes].flat().join(': '))
  }
  const log = { info() {}, warn, error: warn }
  // The verdict does not depend on certificates of listeners and upstreams.
  const { listen, admin, ...config } = loaded.config
  const plain = { listen: { ...listen, tls: undefined }, admin: { ...admin, tls: undefined }, upstreams: [] }
  const authData = await openAuthData({ config: { ...config, ...plain }, log, now: io.now })
  const late = sleep(waitMs, false, { ref: false })
  try {
    authData.start()
    if (await Promise.race([authData.whenLoaded(), late])) {
      const fetched = Promise.all(authData.keySets.map((keySet) => keySet.whenFetched()))
      await Promise.race([fetched, late])
      return authData
    }
    const unmet = authData.conditions().filter(({ ok }) => !ok)
    const missing = unmet.map(({ name }) => name)
    throw new NotDone(`no answer within ${waitMs / 1000} s: ${missing.join(', ')}`)
  } finally {
    await authData.stop()
  }
}

function wordFor(value: boolean | null, whenTrue: string, whenFalse: string): string {
  if (value === null) {
    return 'unknown'
  }
  return value ? whenTrue : whenFalse
}

function report(inspection: Inspection): string {
  const { reason, explanation, kid, alg, timeLeftSeconds, scope, revoked, credentialActive } = inspection
  const lines = [
    ['verdict', reason === null ? 'valid' : `refused (${reason})`],
    ['', explanation],
    ['kid', JSON.stringify(kid)],
    ['alg', JSON.stringify(alg)],
    ['account', JSON.stringify(inspection.account)],
    ['access key', JSON.stringify(inspection.accessKey)],
    ['time left', timeLeftSeconds === null ? 'unknown' : `${timeLeftSeconds} s`],
    ...(scope === null ? [] : [['scope', scope === '' ? 'nothing' : scope]]),
    ['revoked', wordFor(revoked, 'yes', 'no')],
    ['credential', wordFor(credentialActive, 'active', 'not active')],
    ['header', JSON.stringify(inspection.header, null, 2)],
    ['claims', JSON.stringify(inspection.claims, null, 2)],
  ]
  return lines.map(([name, value]) => `${String(name).padEnd(12)}${value}`).join('\n')
}
