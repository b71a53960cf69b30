/** `revocations add|list|remove`: tokens that end before they expire, in a file or in PostgreSQL. */
import { type Command, Option } from 'commander'
import { type RevocationName, revocationEntry } from '../credentials/records.ts'
import { parseTime, timeProblem } from '../values/names.ts'
import { type CommandIo, type Flags, parserWith, UsageFailure } from './command-io.ts'
import { addStoreCommand, openRecords, parseName, type StoreFlags } from './store-flags.ts'

type NameFlags = StoreFlags & Flags<never, 'jti' | 'account' | 'accessKey' | 'issuedBefore'>

export function revocationsCommand(io: CommandIo): Command {
  const example =
    'storage-auth-sidecar revocations add --file revocations.yaml --account acme --issued-before now'
  const description = 'end tokens before they expire, in a file or in PostgreSQL'
  const group = io.command('revocations', description, example)
  const named = (name: string, description: string, example: string) =>
    addStoreCommand(group, name, description, example)
      .addOption(new Option('--jti <id>', 'one token by jti').argParser(parseName).conflicts('issuedBefore'))
      .option('--account <id>', 'the tokens of an account', parseName)
      .option('--access-key <key>', 'the tokens of an access key', parseName)

  named('add', 'add a revocation, and print it as JSON', '--account acme --issued-before now')
    .option(
      '--issued-before <time>',
      'only tokens issued before this time (RFC 3339), or before now',
      parserWith((text) => (text === 'now' ? undefined : timeProblem(text))),
    )
    .action(async ({ issuedBefore, ...flags }: NameFlags) => {
      const name = nameOf(flags)
      const bound = issuedBefore === 'now' ? io.now() : parseTime(issuedBefore ?? '')
      const revocation = { ...name, ...(bound !== undefined && { issuedBeforeMs: bound }) }
      const { revocations } = await openRecords(flags)
      io.unwrap(await revocations.add(revocation))
      io.print(JSON.stringify(revocationEntry(revocation)))
    })

  addStoreCommand(group, 'list', 'list the revocations').action(async (flags: StoreFlags) => {
    const { revocations } = await openRecords(flags)
    io.printList(flags.json, io.unwrap(await revocations.list()).map(revocationEntry), {
      BY: ({ issuedBefore: _, ...name }) => String(Object.keys(name)[0]),
      NAME: ({ issuedBefore: _, ...name }) => String(Object.values(name)[0]),
      'ISSUED BEFORE': ({ issuedBefore = 'any time' }) => issuedBefore,
    })
  })

  named('remove', 'remove all revocations of a name', '--account acme').action(async (flags: NameFlags) => {
    const name = nameOf(flags)
    const { revocations } = await openRecords(flags)
    io.unwrap(await revocations.remove(name))
    io.print(flags.json ? JSON.stringify({ ...name, removed: true }) : 'removed')
  })
  return group
}

function nameOf({ jti, account, accessKey }: NameFlags): RevocationName {
  const names = Object.entries({ jti, accountId: account, accessKey })
  const given = names.filter(([, value]) => value !== undefined)
  if (given.length !== 1) throw new UsageFailure('give exactly one of --jti, --account and --access-key')
  return Object.fromEntries(given)
}
