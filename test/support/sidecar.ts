/** A sidecar of its own for a test: real listeners, its own key and credentials. */
import type { Test } from 'tap'
import { type App, createApp } from '../../src/app.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createLog } from '../../src/ops/log.ts'
import { type CredentialOptions, makeCredentialsFile } from './credentials.ts'
import { makeKeyDirectory, type TestKeyDirectory } from './keys.ts'
import { type MintOptions, mintToken } from './tokens.ts'

/** What a test does with its sidecar. */
export interface TestSidecar {
  readonly app: App
  /** The port of the data listener. */
  readonly port: number
  /** The port of the admin listener. */
  readonly adminPort: number
  readonly key: TestKeyDirectory
  readonly credentialsFile: string
  readonly logins: readonly { accountId: string; accessKey: string; secret: string }[]
  /** A good token of the first credential. */
  readonly token: string
  /** Mints a token, good but for the options. */
  mint(options?: Partial<MintOptions>): Promise<string>
  /** The log so far, a parsed line each. */
  readonly log: Record<string, unknown>[]
  /** The value of one series at `/metrics`, such as `name{a="b"}`; 0 when it is not there. */
  metric(series: string): Promise<number>
  /** Stops it; a second call does nothing. */
  stop(): Promise<void>
}

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

/** Starts a sidecar on free ports of the loopback interface. */
export async function startSidecar(
  t: Pick<Test, 'teardown' | 'testdir'>,
  options: TestSidecarOptions = {},
): Promise<TestSidecar> {
  const key = await makeKeyDirectory(t)
  const { file, logins } = await makeCredentialsFile(t, options.credentials ?? [{ accountId: 'acme' }])
  const flags: Record<string, string> = {
    'listen-host': '127.0.0.1',
    'listen-port': '0',
    'admin-host': '127.0.0.1',
    'admin-port': '0',
    ...(options.jwksUrl === undefined
      ? { 'keys-directory': key.directory, 'credentials-file': file }
      : { 'keys-jwks-url': options.jwksUrl }),
    'log-access': 'all',
    ...(options.upstreamUrl === undefined ? {} : { 'upstream-url': options.upstreamUrl }),
    ...options.settings,
  }
  const loaded = loadConfig({
    env: {},
    flags: Object.fromEntries(Object.entries(flags).map(([name, value]) => [`--${name}`, value])),
  })
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  const log: Record<string, unknown>[] = []
  const destination = { write: (line: string) => void log.push(JSON.parse(line)) }
  const app = await createApp({
    config: loaded.config,
    log: createLog('info', destination),
    ...(options.now === undefined ? {} : { now: options.now }),
  })
  const { data, admin } = await app.start()
  let stopped: Promise<unknown> | undefined
  const stop = async () => {
    stopped ??= app.stop()
    await stopped
  }
  t.teardown(stop)
  const [login] = logins
  if (login === undefined) throw new Error('a sidecar for a test needs a credential')
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
    token: await mint(),
    mint,
    log,
    metric: async (series) => {
      const response = await fetch(`http://127.0.0.1:${admin.port}/metrics`)
      for (const line of (await response.text()).split('\n')) {
        if (line.startsWith(`${series} `)) return Number(line.slice(series.length + 1))
      }
      return 0
    },
    stop,
  }
}
