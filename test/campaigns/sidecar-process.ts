/** The built program as a child process, and its observable figures. */
import { spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { createTrust, expiredToken, forgedToken, type Login, MAIN, type Trust } from '../../bench/trust.ts'
import { ACCESS_FAILURES } from '../../src/base/errors.ts'
import { serveArgs } from '../support/program.ts'
import { type BoundRequest, LISTED_HOSTS } from './access.ts'

export interface Identity {
  readonly accountId: string
  readonly accessKey: string
  readonly tokenId: string
  /** Epoch seconds. */
  readonly expiresAt: number
  readonly scope?: string | undefined
  /** Of a token of another issuer than ours. */
  readonly issuer?: string
  /** Of a link: the request that it allows. */
  readonly bound?: BoundRequest
  /** Of a login by HTTP Basic, whose token id and end are not known. */
  readonly isBasic?: boolean
}

/** Credentials and tokens of a campaign's clients, and the sidecar's configuration. */
export interface CampaignTrust {
  readonly good: ReadonlyMap<string, Identity>
  /** Expired, forged, garbled, and of unknown accounts; the first one is expired. */
  readonly bad: readonly string[]
  readonly logins: readonly Login[]
  readonly flags: readonly string[]
  readonly mint: Trust['mint']
  readonly directory: string
  remove(): void
}

/** Accounts whose names must survive the way into a header. */
const ACCOUNTS = ['acme', 'Ünïcode 账户', 'a b%20c', '100%', 'x.y_z"\\', '🦊']
const ISSUER = 'https://idp.example/'

/**
 * Creates keys, credentials, a trusted issuer, and tokens that stay valid for a day.
 * Of each account two are unrestricted, one may read, one create and one modify below `path`.
 */
export async function createCampaignTrust(path: string): Promise<CampaignTrust> {
  const actions = ['read', 'create', 'modify']
  const scopes = [undefined, undefined, ...actions.map((action) => `storage.${action}:${path}`)]
  const directory = mkdtempSync(join(tmpdir(), 'sidecar-campaign-'))
  const trust = createTrust(directory)
  const logins = ACCOUNTS.map((account) => trust.addLogin(account))
  const expiresAt = Math.floor(Date.now() / 1000) + 80_000
  const good = new Map<string, Identity>()
  for (const { accountId, accessKey } of logins) {
    for (const [count, scope] of scopes.entries()) {
      const tokenId = `${count} of ${accessKey}`
      const claims = { sub: accountId, client_id: accessKey, jti: tokenId, exp: expiresAt, scope }
      good.set(trust.mint(claims), { accountId, accessKey, tokenId, expiresAt, scope })
    }
  }
  const names = { accountId: 'acme', accessKey: 'runner', tokenId: 'theirs', expiresAt }
  const theirs = { iss: ISSUER, sub: 'runner', jti: 'theirs', exp: expiresAt }
  good.set(trust.mint(theirs, { typ: 'JWT' }), { ...names, issuer: ISSUER })
  const keySet = createServer((_req, res) => res.end(trust.jwks)).listen(0, '127.0.0.1')
  await once(keySet, 'listening')
  const jwksUrl = `http://127.0.0.1:${(keySet.address() as AddressInfo).port}/`
  const trusted = [{ issuer: ISSUER, jwksUrl, audience: 'storage-api', accounts: { runner: 'acme' } }]
  const [first = ''] = good.keys()
  const bad = [
    expiredToken(trust),
    forgedToken(trust),
    trust.mint({}, {}, generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey),
    trust.mint({}, { kid: 'unknown' }),
    trust.mint({}, { alg: 'none' }).replace(/[^.]*$/, ''),
    trust.mint({}, { typ: 'JWT' }),
    trust.mint({ aud: 'other' }),
    trust.mint({ exp: undefined }),
    trust.mint({ sub: 'unknown' }),
    ...[first.slice(0, -3), `${first}=`, `${first}.x`, `${'a'.repeat(9000)}.b.c`, 'garbage', '..'],
  ]
  const remove = () => {
    keySet.close()
    rmSync(directory, { recursive: true, force: true })
  }
  const more = [
    '--trusted-issuers',
    JSON.stringify(trusted),
    '--links-enabled',
    'true',
    '--oauth-enabled',
    'true',
    '--oauth-ignored-scopes',
    'catalog',
    '--scopes-hosts',
    LISTED_HOSTS.join(),
  ]
  return { good, bad, logins, flags: [...trust.flags, ...more], mint: trust.mint, directory, remove }
}

/** Reasons of refusals, which strangers can cause: whatever the client does then, no 5xx is counted. */
const REFUSALS = new Set([...ACCESS_FAILURES, 'admission', 'parser', 'method', 'invalid', 'rejected'])

interface ProcessOptions {
  readonly nodeFlags?: readonly string[]
  /** Called with each line of the log. */
  readonly onLine?: (line: Readonly<Record<string, unknown>>) => void
}

/** Starts `serve` on free ports of the loopback interface, in front of an upstream. */
export async function startSidecar(
  trust: CampaignTrust,
  upstreamPort: number,
  flags: readonly string[],
  { nodeFlags = [], onLine = () => {} }: ProcessOptions = {},
) {
  const listening = serveArgs({ 'upstream-url': `http://127.0.0.1:${upstreamPort}` })
  const all = [...trust.flags, ...listening, ...flags]
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('SIDECAR_')))
  const child = spawn(process.execPath, [...nodeFlags, MAIN, 'serve', ...all], { env })
  const basicOf = ({ accessKey, secret }: Login) => Buffer.from(`${accessKey}:${secret}`).toString('base64')
  const ofLogins = trust.logins.flatMap((login) => [login.secret, basicOf(login)])
  const secrets = [...ofLogins, ...[...trust.good.keys()].map(signatureOf)]
  const complaints: string[] = []
  const ports = new Map<string, number>()
  let ended: string | undefined

  const kill = () => child.kill('SIGKILL')
  process.once('exit', kill)
  const exited = new Promise<void>((resolve) => {
    child.once('exit', (code, signal) => {
      ended = signal ?? `exit code ${code}`
      process.off('exit', kill)
      resolve()
    })
  })
  const look = (line: string) => {
    const hasToken = /[?]link_token=|eyJ[\w-]+\.[\w-]+\.[\w-]{80}/.test(line)
    if (hasToken || secrets.some((secret) => line.includes(secret))) {
      complaints.push(`a secret in the log: ${line}`)
    }
  }
  createInterface({ input: child.stderr }).on('line', (line) => {
    look(line)
    complaints.push(line)
  })
  await new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      look(line)
      const parsed = JSON.parse(line)
      onLine(parsed)
      const { msg, listener, port } = parsed
      complaints.push(...faultsIn(line))
      if (msg === 'listening') {
        ports.set(listener, port)
      }
      if (ports.size === 2) {
        resolve()
      }
    })
    exited.then(() => reject(new Error(`the sidecar did not start: ${ended} ${complaints.join('\n')}`)))
  })
  const pid = child.pid ?? 0
  const sidecar = {
    pid,
    port: Number(ports.get('data')),
    /** How it ended, once it has. */
    get ended() {
      return ended
    },
    /** Log lines of level error or worse, text on stderr, and lines with a token or secret. */
    complaints,
    descriptors: () => readdirSync(`/proc/${pid}/fd`).length,
    /** The series of `/metrics` by name and labels. */
    async metrics(): Promise<ReadonlyMap<string, number>> {
      const url = `http://127.0.0.1:${ports.get('admin')}/metrics`
      const text = await (await fetch(url, { headers: { connection: 'close' } })).text()
      const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
      return new Map(
        samples.map((line) => {
          const space = line.lastIndexOf(' ')
          return [line.slice(0, space), Number(line.slice(space + 1))]
        }),
      )
    },
    async stop() {
      child.kill('SIGINT')
      const timer = setTimeout(kill, 5000)
      await exited
      clearTimeout(timer)
    },
  }
  const isFetched = `auth_sidecar_jwks_fetches_total{issuer="${ISSUER}",result="ok"}`
  while ((await sidecar.metrics()).get(isFetched) !== 1) {
    await sleep(50)
  }
  return sidecar
}

function faultsIn(line: string): string[] {
  const { level, status, reason } = JSON.parse(line)
  if (status >= 500 && REFUSALS.has(reason)) {
    return [`a refusal is counted as a fault: ${line}`]
  }
  return isErrorLevel(level) ? [line] : []
}

const isErrorLevel = (level: unknown) => level === 'error' || level === 'fatal' || Number(level) >= 50

const signatureOf = (token: string) => token.slice(token.lastIndexOf('.') + 1)
