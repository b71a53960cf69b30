/** A sidecar that takes HTTP Basic, and requests with it. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Setup, SetupOptions } from './setup.ts'
import { startSetup } from './setup.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** The value of `Authorization` for a name and a secret. */
export const basicValue = (name: string, secret: string): string =>
  `Basic ${Buffer.from(`${name}:${secret}`).toString('base64')}`

/** The line `Authorization` of a name and a secret, with its line end. */
export const basicLine = (name: string, secret: string): string =>
  `Authorization: ${basicValue(name, secret)}\r\n`

/** A login as the line of HTTP Basic, by its access key alone. */
export const lineOf = ({ accessKey, secret }: { accessKey: string; secret: string }): string =>
  basicLine(accessKey, secret)

export type BasicSetup = Awaited<ReturnType<typeof startBasicSetup>>

/** Starts a sidecar that takes HTTP Basic, in front of a recording upstream. */
export async function startBasicSetup(t: Test, options: SetupOptions = {}) {
  const revocations = join(await temporaryDirectory(t), 'revocations.yaml')
  writeFileSync(revocations, 'revocations: []\n')
  const settings = { 'basic-enabled': 'true', 'revocations-file': revocations, ...options.settings }
  const setup = await startSetup(t, { ...options, settings })
  const { sidecar } = setup
  const [login] = sidecar.logins
  if (login === undefined) {
    throw new Error('a sidecar has a login')
  }
  /** A request with header lines of its own. */
  const request = (methodAndTarget: string, lines: string) =>
    `${methodAndTarget} HTTP/1.1\r\nHost: storage.example\r\n${lines}\r\n`
  return {
    ...setup,
    login,
    /** The line of the first login. */
    line: lineOf(login),
    request,
    /** Sends a GET with header lines on a connection of its own. */
    get: (lines: string, target = '/object') => setup.ask(request(`GET ${target}`, lines)),
    /** Sends a GET, which must be forwarded, and returns the identity that the upstream received. */
    identity: (lines: string) => identityOf(setup, request('GET /object', lines)),
    audit: () => sidecar.log.filter(({ msg, event }) => msg === 'audit' && event !== 'reload'),
    access: () => sidecar.log.filter(({ msg }) => msg === 'request'),
    /** Counts the checks with this result and reason. */
    checks: (reason: string) => {
      const result = reason === 'ok' ? 'accepted' : 'rejected'
      return sidecar.metric(`auth_sidecar_token_checks_total{result="${result}",reason="${reason}"}`)
    },
    /** Replaces the revocations by this list in YAML. */
    revoke: (list: string) => writeFileSync(revocations, `revocations: ${list}\n`),
  }
}

async function identityOf({ ask, upstream }: Setup, bytes: string) {
  upstream.requests.splice(0)
  const { status } = await ask(bytes)
  const headers = upstream.requests[0]?.headers ?? {}
  return {
    status,
    account: headers['x-authenticated-account-id'],
    accessKey: headers['x-authenticated-access-key'],
    tokenId: headers['x-authenticated-token-id'],
    expires: Number(headers['x-authenticated-token-expires']),
    scope: headers['x-authenticated-scope'],
    authorization: headers['authorization'],
  }
}
