/** `revocations add|list|remove`: tokens that end before they expire, in a file or in PostgreSQL. */
import type { Command } from 'commander'
import { type RevocationName, revocationEntry } from '../credentials/editors.ts'
import { nameProblem } from '../credentials/names.ts'
import {
  type CommandIo,
  createCommand,
  formatList,
  printer,
  UsageFailure,
  unwrap,
  warner,
} from './command-io.ts'
import { addStoreFlags, openEditors, parseTimeFlag, type StoreFlags } from './store-flags.ts'

interface NameFlags extends StoreFlags {
  readonly jti?: string
  readonly account?: string
  readonly accessKey?: string
}

type AddFlags = NameFlags & { readonly issuedBefore?: string }

const PROGRAM = 'storage-auth-sidecar revocations'

const EXAMPLES = `
Examples:
  ${PROGRAM} add --file revocations.yaml --account acme --issued-before now
  ${PROGRAM} add --postgres-url-file postgres.url --jti 3f0c2a5e-6f0e-4c57-9d0b-2f4c8f3a7b11
  ${PROGRAM} list --file revocations.yaml
  ${PROGRAM} remove --file revocations.yaml --account acme
`

/** @param now - epoch milliseconds */
export function revocationsCommand(io: CommandIo, { now = Date.now }: { now?: () => number } = {}): Command {
  const print = printer(io)
  const description = 'end tokens before they expire, in a file or in PostgreSQL'
  const group = createCommand('revocations', description, io).addHelpText('after', EXAMPLES)
  const subcommand = (name: string, description: string, example: string) =>
    addStoreFlags(group.command(name).description(description), 'revocations').addHelpText(
      'after',
      `\nExample:\n  ${PROGRAM} ${name} --file revocations.yaml${example}`,
    )
  const named = (...parameters: Parameters<typeof subcommand>) =>
    subcommand(...parameters)
      .option('--jti <id>', 'one token, by its claim jti')
      .option('--account <id>', 'the tokens of an account')
      .option('--access-key <key>', 'the tokens of an access key')

  named('add', 'add a revocation, and print it as JSON', ' --account acme --issued-before now')
    .option('--issued-before <time>', 'only tokens issued before this time (RFC 3339), or before now')
    .action(async ({ issuedBefore, ...flags }: AddFlags) => {
      const name = checkName(flags)
      if (issuedBefore !== undefined && name.jti) {
        throw new UsageFailure('--jti and --issued-before cannot be used together')
      }
      const parse = (text: string) => (text === 'now' ? now() : parseTimeFlag('--issued-before', text))
      const bound = issuedBefore === undefined ? {} : { issuedBefore: parse(issuedBefore) }
      const revocation = { ...name, ...bound }
      unwrap(await (await openEditors(flags)).revocations.add(revocation))
      print(JSON.stringify(revocationEntry(revocation)))
    })

  subcommand('list', 'list the revocations', '').action(async (flags: StoreFlags) => {
    const { value, warnings } = unwrap(await (await openEditors(flags)).revocations.list())
    warnings.forEach(warner(io))
    const list = formatList(flags.json, value.map(revocationEntry), {
      BY: ({ issuedBefore: _, ...name }) => String(Object.keys(name)[0]),
      NAME: ({ issuedBefore: _, ...name }) => String(Object.values(name)[0]),
      'ISSUED BEFORE': ({ issuedBefore = 'any time' }) => issuedBefore,
    })
    print(list)
  })

  named('remove', 'remove all revocations of a name', ' --account acme').action(async (flags: NameFlags) => {
    const name = checkName(flags)
    unwrap(await (await openEditors(flags)).revocations.remove(name))
    print(flags.json ? JSON.stringify({ ...name, removed: true }) : 'removed')
  })
  return group
}

/** @throws UsageFailure unless there is exactly one name, which a token may carry */
function checkName({ jti, account, accessKey }: NameFlags): RevocationName {
  const names = Object.entries({ jti, accountId: account, accessKey }).filter(
    ([, value]) => value !== undefined,
  )
  const [name, ...others] = names
  if (name === undefined || others.length > 0) {
    throw new UsageFailure('give exactly one of --jti, --account and --access-key')
  }
  const problem = nameProblem(String(name[1]))
  if (problem !== undefined) throw new UsageFailure(`the name ${problem}`)
  return Object.fromEntries([name])
}
