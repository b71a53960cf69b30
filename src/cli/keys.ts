/** `keys add|list|activate|retire`: the keys that sign and verify tokens. Never prints a private key. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import { activateKey, addKey, retireKey } from '../keys/key-changes.ts'
import { isKid, KID_RULE, listKeys, readKeyDirectory } from '../keys/key-directory.ts'
import { ALGORITHMS, type Algorithm } from '../keys/key-ring.ts'
import { errorCode, fileErrorReason, type NotDone } from '../reload/files.ts'
import {
  CommandFailure,
  type CommandIo,
  createCommand,
  formatList,
  parsePath,
  parseSeconds,
  printer,
  UsageFailure,
  unwrap,
  warner,
} from './command-io.ts'

interface Options {
  readonly directory: string
  readonly json?: boolean
  readonly config?: string
  readonly maxLifetimeSeconds?: number
}

type AddOptions = Options & { readonly alg: Algorithm; readonly kid?: string; readonly activate?: boolean }
type RetireOptions = Options & { readonly force?: boolean }

const EXAMPLES = `
A rotation that refuses no token that is alive:
  storage-auth-sidecar keys add --directory keys          # published, does not sign yet
  # Once every sidecar has loaded it; the lifetime of tokens is noted for the old key:
  storage-auth-sidecar keys activate --directory keys --config sidecar.yaml KID
  storage-auth-sidecar keys list --directory keys         # says when the old key can go
  storage-auth-sidecar keys retire --directory keys OLD_KID
`

/** @param now - epoch milliseconds */
export function keysCommand(io: CommandIo, { now = Date.now }: { now?: () => number } = {}): Command {
  const print = printer(io)
  const warn = warner(io)
  const description = 'add, list, activate and retire the keys that sign and verify tokens'
  const group = createCommand('keys', description, io).addHelpText('after', EXAMPLES)

  const subcommand = (name: string, description: string, example: string) =>
    group
      .command(name)
      .description(description)
      .addHelpText('after', `\nExample:\n  storage-auth-sidecar keys ${name} ${example}`)
      .requiredOption('--directory <path>', 'the directory of the keys', parsePath)
      .option('--json', 'print JSON')
      .option('--config <file>', 'the settings of the sidecars, which say how long tokens live', parsePath)
      .addOption(
        new Option(
          '--max-lifetime-seconds <n>',
          'or that lifetime, and token.clockToleranceSeconds (default: as noted when the key stopped signing)',
        ).argParser(parseSeconds),
      )
  /** Undefined where nothing says it: no guess, as a token that is alive would be refused. */
  async function longestSeconds({ config, maxLifetimeSeconds }: Options): Promise<number | undefined> {
    if (config === undefined || maxLifetimeSeconds !== undefined) return maxLifetimeSeconds
    const { loadSettings, usable } = await import('./config.ts') // not needed otherwise, and slow to load
    const { token } = usable(loadSettings({ config }, io, false)).config
    return token.maxLifetimeSeconds + token.clockToleranceSeconds
  }

  subcommand(
    'add',
    'generate a key and print it, without its private half, as JSON; the first one signs',
    '--directory keys --alg ES256',
  )
    .addOption(new Option('--alg <name>', 'its algorithm').choices(ALGORITHMS).default('ES256'))
    .option('--kid <kid>', 'its name (default: algorithm, day and a random part)', kid)
    .option('--activate', 'let it sign at once, though not every sidecar may know it yet')
    .action(async ({ activate = false, ...options }: AddOptions) => {
      const change = { ...options, activate, now, longestSeconds: await longestSeconds(options) }
      const added = await applyChange(options.directory, () => addKey(change))
      const created = new Date(added.createdAt * 1000).toISOString()
      print(JSON.stringify({ kid: added.kid, alg: added.alg, active: added.active, created }))
    })

  subcommand(
    'list',
    'list the keys, which of them signs, and when each can be retired',
    '--directory keys --json',
  ).action(async ({ directory, json, ...options }: Options) => {
    const keys = await readKeyDirectory(directory)
    if (keys.problems.length > 0) throw new UsageFailure(keys.problems.join('\n'))
    keys.warnings.forEach(warn)
    const isPast = (time: string) => Date.parse(time) <= now()
    const list = formatList(json, listKeys(keys, await longestSeconds({ directory, ...options })), {
      KID: ({ kid }) => kid,
      ALG: ({ alg }) => alg,
      STATE: ({ active, private: isPrivate }) => (active ? 'active' : isPrivate ? 'verifies' : 'public only'),
      CREATED: ({ created }) => created,
      'STOPPED SIGNING': ({ signedUntil }) => signedUntil ?? '-',
      'RETIRABLE FROM': ({ retirableFrom: from }) => (from !== null && isPast(from) ? 'now' : (from ?? '-')),
    })
    print(list)
  })

  subcommand('activate', 'let a key sign, and record when the previous key stopped', '--directory keys KID')
    .argument('<kid>', 'the key', kid)
    .action(async (kid: string, { json, ...options }: Options) => {
      const change = { ...options, kid, now, longestSeconds: await longestSeconds(options) }
      const { previous } = await applyChange(options.directory, () => activateKey(change))
      if (json) print(JSON.stringify({ active: kid, previous: previous ?? null }))
      else print(`${kid} signs${previous === undefined ? '' : ` in place of ${previous}`}`)
    })

  subcommand('retire', 'remove a key, once no token signed by it can be alive', '--directory keys OLD_KID')
    .argument('<kid>', 'the key', kid)
    .option('--force', 'remove it though tokens signed by it may be alive; they are refused from then on')
    .action(async (kid: string, { json, force = false, ...options }: RetireOptions) => {
      const change = { ...options, kid, now, force, longestSeconds: await longestSeconds(options) }
      await applyChange(options.directory, () => retireKey(change))
      print(json ? JSON.stringify({ retired: kid }) : `retired ${kid}`)
    })
  return group
}

async function applyChange<T extends { readonly ok: true }>(
  directory: string,
  change: () => Promise<T | NotDone>,
): Promise<T> {
  let outcome: T | NotDone
  try {
    outcome = await change()
  } catch (error) {
    const code = errorCode(error)
    // `mkdir` fails with EEXIST if the path is a file.
    if (code === 'EEXIST') throw new UsageFailure(`${directory}: it is not a directory`)
    const message = `${directory}: ${fileErrorReason(error)}`
    throw code === 'ENOENT' || code === 'ENOTDIR' ? new UsageFailure(message) : new CommandFailure(message)
  }
  return unwrap(outcome)
}

function kid(text: string): string {
  if (!isKid(text)) throw new InvalidArgumentError(`It ${KID_RULE}.`)
  return text
}
