/** A sidecar of its own for a test: real listeners, its own key and credentials. */
import type { Test } from 'tap'
import { createApp } from '../../src/app.ts'
import { createLog } from '../../src/base/log.ts'
import { loadConfig } from '../../src/config/load.ts'
import { type CredentialOptions, makeCredentialsFile } from './credentials.ts'
import { makeKeyDirectory } from './keys.ts'
import { metricAt } from './prometheus.ts'
import { type MintOptions, mintToken } from './tokens.ts'

/** What a sidecar for a test is made of. */
export interface TestSidecarOptions {
  /** One upstream at `/`. */
  readonly upstreamUrl?: string
  /** Settings as flags without their dashes: `{ 'timeouts-idle-seconds': '1' }`. */
  readonly settings?: Readonly<Record<string, string>>
  readonly credentials?: readonly CredentialOptions[]
  /** Makes a sidecar that only verifies, with the keys that stand there. */
  readonly jwksUrl?: string
  readonly now?: () => number
}

export type TestSidecar = Awaited<ReturnType<typeof startSidecar>>

/** Starts a sidecar on free ports of the loopback interface. */
export async function startSidecar(t: Pick<Test, 'teardown' | 'testdir'>, options: TestSidecarOptions = {}) {
  const key = await makeKeyDirectory(t)
  const { file, logins } = await makeCredentialsFile(t, options.credentials ?? [{ accountId: 'acme' }])
  const isInDatabase = 'credentials-postgres-url-file' in { ...options.settings }
  const flags: Record<string, string> = {
    'listen-host': '127.0.0.1',
    'listen-port': '0',
    'admin-host': '127.0.0.1',
    'admin-port': '0',
    'log-access': 'all',
    'scopes-hosts': '*', // lists of hosts: test/e2e/scope-hosts.test.ts
  }
  if (options.jwksUrl !== undefined) {
    flags['keys-jwks-url'] = options.jwksUrl
  } else {
    flags['keys-directory'] = key.directory
    if (!isInDatabase) {
      flags['credentials-file'] = file
    }
  }
  if (options.upstreamUrl !== undefined) {
    flags['upstream-url'] = options.upstreamUrl
  }
  Object.assign(flags, options.settings)
  const loaded = loadConfig({
    env: {},
    flags: Object.fromEntries(Object.entries(flags).map(([name, value]) => [`--${name}`, value])),
  })
  if (!loaded.ok) {
    throw new Error(JSON.stringify(loaded.problems))
  }
  const log: Record<string, unknown>[] = []
  const destination = {
    write: (line: string) => {
      log.push(JSON.parse(line))
    },
  }
  const app = await createApp({
    config: loaded.value.config,
    log: createLog('info', destination),
    processCounts: () => ({ log_lines_dropped_total: 0, uncaught_exceptions_total: 0 }),
    ...(options.now === undefined ? {} : { now: options.now }),
  })
  const { data, admin } = await app.start()
  if (admin === undefined) {
    throw new Error('a sidecar for a test has an admin listener')
  }
  let stopped: Promise<unknown> | undefined
  const stop = async () => {
    stopped ??= app.stop()
    await stopped
  }
  t.teardown(stop)
  const [login] = logins
  if (login === undefined) {
    throw new Error('a sidecar for a test needs a credential')
  }
  const mint = (token: Partial<MintOptions> = {}) =>
    mintToken({
      key,
      now: (options.now ?? Date.now)(),
      ...token,
      claims: { sub: login.accountId, client_id: login.accessKey, ...token.claims },
    })
  return {
    app,
    port: data.port,
    adminPort: admin.port,
    key,
    credentialsFile: file,
    logins,
    /** A good token of the first credential. */
    token: await mint(),
    /** Mints a token, good but for the options. */
    mint,
    /** The log so far, a parsed line each. */
    log,
    metric: (series: string) => metricAt(admin.port, series),
    stop,
  }
}
