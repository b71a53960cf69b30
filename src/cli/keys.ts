/** `keys add|list|activate|retire`: the keys that sign and verify tokens. Never prints a private key. */
import { type Command, Option } from 'commander'
import { activateKey, addKey, retireKey } from '../keys/key-changes.ts'
import { isKid, KID_RULE, listKeys, readKeyDirectory } from '../keys/key-directory.ts'
import { ALGORITHMS, type Algorithm } from '../keys/key-ring.ts'
import { errorCode, fileErrorReason } from '../reload/files.ts'
import {
  CommandFailure,
  type CommandIo,
  parsePath,
  parseSeconds,
  textWithout,
  UsageFailure,
} from './command-io.ts'

interface Flags {
  readonly directory: string
  readonly json?: boolean
  readonly config?: string
  readonly maxLifetimeSeconds?: number
}

type AddFlags = Flags & { readonly alg: Algorithm; readonly kid?: string; readonly activate?: boolean }
type RetireFlags = Flags & { readonly force?: boolean }

const EXAMPLES = `
A rotation that refuses no token that is alive:
  storage-auth-sidecar keys add --directory keys          # published, does not sign yet
  # Once every sidecar has loaded it; the lifetime of tokens is noted for the old key:
  storage-auth-sidecar keys activate --directory keys --config sidecar.yaml KID
  storage-auth-sidecar keys list --directory keys         # says when the old key can go
  storage-auth-sidecar keys retire --directory keys OLD_KID
`

const LIFETIME_HELP =
  'or that lifetime, and token.clockToleranceSeconds (default: as noted when the key stopped signing)'

const parseKid = textWithout((text) => (isKid(text) ? undefined : KID_RULE))

/** @param now - epoch milliseconds */
export function keysCommand(io: CommandIo, { now = Date.now }: { now?: () => number } = {}): Command {
  const description = 'add, list, activate and retire the keys that sign and verify tokens'
  const group = io.command('keys', description, EXAMPLES)
  const subcommand = (name: string, description: string, example: string) =>
    group
      .command(name)
      .description(description)
      .addHelpText('after', `\nExample:\n  storage-auth-sidecar keys ${name} --directory keys ${example}`)
      .requiredOption('--directory <path>', 'the directory of the keys', parsePath)
      .option('--json', 'print JSON')
      .option('--config <file>', 'the settings of the sidecars, which say how long tokens live', parsePath)
      .option('--max-lifetime-seconds <n>', LIFETIME_HELP, parseSeconds)

  /** Undefined where nothing says it: no guess, as a token that is alive would be refused. */
  async function longestSeconds({ config, maxLifetimeSeconds }: Flags): Promise<number | undefined> {
    if (config === undefined || maxLifetimeSeconds !== undefined) return maxLifetimeSeconds
    const { loadSettings } = await import('./config.ts') // not needed otherwise, and slow to load
    const { token } = loadSettings({ config }, io, false).config
    return token.maxLifetimeSeconds + token.clockToleranceSeconds
  }

  const withLifetime = async <F extends Flags>(flags: F) => ({
    ...flags,
    now,
    longestSeconds: await longestSeconds(flags),
  })

  subcommand(
    'add',
    'generate a key and print it, without its private half, as JSON; the first one signs',
    '--alg ES256',
  )
    .addOption(new Option('--alg <name>', 'its algorithm').choices(ALGORITHMS).default('ES256'))
    .option('--kid <kid>', 'its name (default: algorithm, day and a random part)', parseKid)
    .option('--activate', 'let it sign at once, though not every sidecar may know it yet')
    .action(async (flags: AddFlags) => {
      const change = await withLifetime(flags)
      const { kid, alg, active, createdAt } = io.unwrap(await addKey(change).catch(failureIn(flags)))
      io.print(JSON.stringify({ kid, alg, active, created: new Date(createdAt * 1000).toISOString() }))
    })

  subcommand('list', 'list the keys, which of them signs, and when each can be retired', '--json').action(
    async (flags: Flags) => {
      const keys = await readKeyDirectory(flags.directory)
      if (keys.problems.length > 0) throw new UsageFailure(keys.problems.join('\n'))
      io.warn(...keys.warnings)
      const isPast = (time: string) => Date.parse(time) <= now()
      io.printList(flags.json, listKeys(keys, await longestSeconds(flags)), {
        KID: ({ kid }) => kid,
        ALG: ({ alg }) => alg,
        STATE: ({ active, private: isPrivate }) =>
          active ? 'active' : isPrivate ? 'verifies' : 'public only',
        CREATED: ({ created }) => created,
        'STOPPED SIGNING': ({ signedUntil }) => signedUntil ?? '-',
        'RETIRABLE FROM': ({ retirableFrom }) =>
          retirableFrom !== null && isPast(retirableFrom) ? 'now' : (retirableFrom ?? '-'),
      })
    },
  )

  subcommand('activate', 'let a key sign, and record when the previous key stopped', 'KID')
    .argument('<kid>', 'the key', parseKid)
    .action(async (kid: string, flags: Flags) => {
      const change = { ...(await withLifetime(flags)), kid }
      const { previous } = io.unwrap(await activateKey(change).catch(failureIn(flags)))
      if (flags.json) io.print(JSON.stringify({ active: kid, previous: previous ?? null }))
      else io.print(`${kid} signs${previous === undefined ? '' : ` in place of ${previous}`}`)
    })

  subcommand('retire', 'remove a key, once no token signed by it can be alive', 'OLD_KID')
    .argument('<kid>', 'the key', parseKid)
    .option('--force', 'remove it though tokens signed by it may be alive; they are refused from then on')
    .action(async (kid: string, flags: RetireFlags) => {
      const change = { ...(await withLifetime(flags)), kid }
      io.unwrap(await retireKey(change).catch(failureIn(flags)))
      io.print(flags.json ? JSON.stringify({ retired: kid }) : `retired ${kid}`)
    })
  return group
}

/** Handles an error of the file system. @throws the failure that ends the command */
function failureIn({ directory }: Flags) {
  return (error: unknown): never => {
    const code = errorCode(error)
    // `mkdir` fails with EEXIST if the path is a file.
    const message = `${directory}: ${code === 'EEXIST' ? 'it is not a directory' : fileErrorReason(error)}`
    const isUsage = ['EEXIST', 'ENOENT', 'ENOTDIR'].includes(code)
    throw isUsage ? new UsageFailure(message) : new CommandFailure(message)
  }
}
