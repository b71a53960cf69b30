/** `keys add|list|activate|retire`: the keys that sign and verify tokens. Never prints a private key. */
import { type Command, Option } from 'commander'
import { activateKey, addKey, retireKey } from '../keys/key-changes.ts'
import { isKid, KID_RULE, listKeys, readKeyDirectory } from '../keys/key-directory.ts'
import { ALGORITHMS, type Algorithm } from '../keys/key-ring.ts'
import { type CommandIo, describe, type Flags, parsePath, parserWith, parseSeconds } from './command-io.ts'

type KeyFlags = Flags<'directory', 'config', 'json' | 'force'> & { readonly maxLifetimeSeconds?: number }
type AddFlags = KeyFlags & Flags<never, 'kid', 'activate'> & { readonly alg: Algorithm }

const PROGRAM = 'storage-auth-sidecar keys'

const LIFETIME_HELP =
  'or that lifetime, and token.clockToleranceSeconds (default: as noted when the key stopped signing)'

const parseKid = parserWith((text) => (isKid(text) ? undefined : KID_RULE))

export function keysCommand(io: CommandIo): Command {
  const group = io.command(
    'keys',
    'add, list, activate and retire the keys that sign and verify tokens',
    '# A rotation that refuses no token that is alive; first a key that is published and does not sign yet:',
    `${PROGRAM} add --directory keys`,
    '# Once every sidecar has loaded it; the lifetime of tokens is noted for the old key:',
    `${PROGRAM} activate --directory keys --config sidecar.yaml KID`,
    '# When this says that the old key can go:',
    `${PROGRAM} list --directory keys`,
    `${PROGRAM} retire --directory keys OLD_KID`,
  )
  const subcommand = (name: string, description: string, example: string) =>
    describe(group.command(name), description, `${PROGRAM} ${name} --directory keys ${example}`)
      .requiredOption('--directory <path>', 'the directory of the keys', parsePath)
      .option('--json', 'print JSON')
      .option('--config <file>', 'the settings of the sidecars, which say how long tokens live', parsePath)
      .option('--max-lifetime-seconds <n>', LIFETIME_HELP, parseSeconds)

  subcommand('add', 'generate a key, and print its kid as JSON; the first one signs', '--alg ES256')
    .addOption(new Option('--alg <name>', 'its algorithm').choices(ALGORITHMS).default('ES256'))
    .option('--kid <kid>', 'its name (default: algorithm, day and a random part)', parseKid)
    .option('--activate', 'let it sign at once, though not every sidecar may know it yet')
    .action(async (flags: AddFlags) => {
      const { kid, alg, active, createdAtSeconds } = io.unwrap(await addKey(await withLifetime(flags, io)))
      io.print(JSON.stringify({ kid, alg, active, created: new Date(createdAtSeconds * 1000).toISOString() }))
    })

  subcommand('list', 'list the keys, which of them signs, and when each can be retired', '--json').action(
    (flags: KeyFlags) => printKeys(flags, io),
  )

  subcommand('activate', 'let a key sign, and record when the previous key stopped', 'KID')
    .argument('<kid>', 'the key', parseKid)
    .action(async (kid: string, flags: KeyFlags) => {
      const { previous } = io.unwrap(await activateKey({ ...(await withLifetime(flags, io)), kid }))
      if (flags.json) {
        io.print(JSON.stringify({ active: kid, previous: previous ?? null }))
      } else {
        io.print(`${kid} signs${previous === undefined ? '' : ` in place of ${previous}`}`)
      }
    })

  subcommand('retire', 'remove a key, once no token signed by it can be alive', 'OLD_KID')
    .argument('<kid>', 'the key', parseKid)
    .option('--force', 'remove it though tokens signed by it may be alive; they are refused from then on')
    .action(async (kid: string, flags: KeyFlags) => {
      io.unwrap(await retireKey({ ...(await withLifetime(flags, io)), kid }))
      io.print(flags.json ? JSON.stringify({ retired: kid }) : `retired ${kid}`)
    })
  return group
}

async function printKeys(flags: KeyFlags, io: CommandIo): Promise<void> {
  const keys = io.unwrap(await readKeyDirectory(flags.directory))
  const { tokenSeconds } = await withLifetime(flags, io)
  const isPast = (time: string) => Date.parse(time) <= io.now()
  io.printList(flags.json, listKeys(keys, tokenSeconds), {
    KID: ({ kid }) => kid,
    ALG: ({ alg }) => alg,
    STATE: stateOf,
    CREATED: ({ created }) => created,
    'STOPPED SIGNING': ({ signedUntil }) => signedUntil ?? '-',
    'RETIRABLE FROM': ({ retirableFrom }) =>
      retirableFrom !== null && isPast(retirableFrom) ? 'now' : (retirableFrom ?? '-'),
  })
}

function stateOf({ active, private: isPrivate }: { readonly active: boolean; readonly private: boolean }) {
  if (active) {
    return 'active'
  }
  return isPrivate ? 'verifies' : 'public only'
}

/** Does not guess an unknown lifetime: after a wrong guess, sidecars would refuse tokens that are alive. */
async function withLifetime<F extends KeyFlags>(flags: F, io: CommandIo) {
  let tokenSeconds = flags.maxLifetimeSeconds
  if (tokenSeconds === undefined && flags.config !== undefined) {
    const { configFromFlags } = await import('./config.ts') // slow to load
    const { token } = configFromFlags({ config: flags.config }, io, { needsUpstream: false }).config
    tokenSeconds = token.maxSignedSeconds
  }
  return { ...flags, now: io.now, tokenSeconds }
}
