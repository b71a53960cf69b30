/**
 * `token issue|inspect`: mints a token that a sidecar with these settings accepts, or explains a given one.
 */
import { text as readText } from 'node:stream/consumers'
import { type Command, Option } from 'commander'
import { type Inspection, inspectToken } from '../token/inspect.ts'
import { createIssuer } from '../token/issue.ts'
import { createVerifier } from '../token/verify.ts'
import {
  CommandFailure,
  type CommandIo,
  checkNames,
  createCommand,
  parseSeconds,
  printer,
  UsageFailure,
  warner,
} from './command-io.ts'
import { addSettingFlags, type ParsedOptions, settingsFromCommand } from './config.ts'
import { loadKeys, loadVerdictSources } from './verdict-sources.ts'

interface IssueOptions extends ParsedOptions {
  readonly account: string
  readonly accessKey: string
  readonly lifetimeSeconds?: number
  readonly json?: true
}

interface InspectOptions extends ParsedOptions {
  readonly json?: true
}

const GROUP_EXAMPLES = `
Example:
  storage-auth-sidecar token issue --account acme --access-key backup |
    storage-auth-sidecar token inspect`

const ISSUE_EXAMPLES = `
Example:
  storage-auth-sidecar token issue --config sidecar.yaml --account acme --access-key backup`

const INSPECT_EXAMPLES = `
Exits with 0 when the token is accepted, with 1 when it is refused.

Examples:
  storage-auth-sidecar token inspect --config sidecar.yaml "$TOKEN"
  pbpaste | storage-auth-sidecar token inspect --config sidecar.yaml --json`

/** @param now - the clock, in epoch milliseconds */
export function tokenCommand(io: CommandIo, { now = Date.now }: { now?: () => number } = {}): Command {
  const print = printer(io)
  const warn = warner(io)
  const group = createCommand('token', 'mint a token, or explain one', io).addHelpText(
    'after',
    GROUP_EXAMPLES,
  )

  const issue = group
    .command('issue')
    .description('mint a token with the key that signs')
    .requiredOption('--account <id>', 'the account identifier')
    .requiredOption('--access-key <key>', 'the access key')
    .addOption(
      new Option(
        '--lifetime-seconds <n>',
        'how long it is good for (default: token.lifetimeSeconds)',
      ).argParser(parseSeconds),
    )
    .option('--json', 'print JSON')
  addSettingFlags(issue)
  issue.addHelpText('after', ISSUE_EXAMPLES).action(async (options: IssueOptions) => {
    const config = settingsFromCommand(options, io)
    const { maxLifetimeSeconds } = config.token
    const { lifetimeSeconds = config.token.lifetimeSeconds } = options
    if (lifetimeSeconds < 1 || lifetimeSeconds > maxLifetimeSeconds) {
      throw new UsageFailure(
        `--lifetime-seconds must be 1 to ${maxLifetimeSeconds} (token.maxLifetimeSeconds)`,
      )
    }
    const subject = checkNames(options)
    const ring = await loadKeys(config, { warn })
    if (ring.signing === undefined) {
      throw new UsageFailure(`${config.keys.directory}: holds no private key, so it can only verify`)
    }
    const issueToken = createIssuer({ ...config.token, keys: () => ring, now })
    const { token, identity } = await issueToken(subject, lifetimeSeconds)
    const expiresAt = new Date(identity.expiresAt * 1000).toISOString()
    print(options.json ? JSON.stringify({ token, expirationSec: lifetimeSeconds, expiresAt }) : token)
  })

  const inspect = group
    .command('inspect')
    .description('explain a token: verdict, reason, key, claims, time left, revoked or not')
    .argument('[token]', 'the token (default: read from stdin)')
    .option('--json', 'print JSON')
  addSettingFlags(inspect)
  inspect
    .addHelpText('after', INSPECT_EXAMPLES)
    .action(async (argument: string | undefined, options: InspectOptions) => {
      const config = settingsFromCommand(options, io)
      const { ring, ...sources } = await loadVerdictSources(config, { now, warn })
      const verify = createVerifier({ ...config.token, ...sources, keys: () => ring, now })
      const token = (argument ?? (await readText(io.stdin))).trim()
      const inspection = await inspectToken(token, { verify, ...sources, now })
      print(printable(options.json ? JSON.stringify(inspection) : report(inspection)))
      if (inspection.reason !== null) throw new CommandFailure(`the token is refused: ${inspection.reason}`)
    })
  return group
}

function report(inspection: Inspection): string {
  const { reason, explanation, kid, alg, timeLeftSeconds, revoked, credentialActive } = inspection
  const lines = [
    ['verdict', reason === null ? 'valid' : `refused (${reason})`],
    ['', explanation],
    ['kid', JSON.stringify(kid)],
    ['alg', JSON.stringify(alg)],
    ['time left', timeLeftSeconds === null ? 'unknown' : `${timeLeftSeconds} s`],
    ['revoked', revoked === null ? 'unknown' : revoked ? 'yes' : 'no'],
    ['credential', credentialActive === null ? 'unknown' : credentialActive ? 'active' : 'not active'],
    ['header', JSON.stringify(inspection.header, null, 2)],
    ['claims', JSON.stringify(inspection.claims, null, 2)],
  ]
  return lines.map(([name, value]) => `${String(name).padEnd(12)}${value}`).join('\n')
}

/** Escapes what JSON leaves as it is and a terminal interprets: C1 controls, bidirectional text. */
function printable(json: string): string {
  return json.replace(
    /[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
