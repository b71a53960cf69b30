/** `config check | show | schema`, and the settings that commands take as flags. */
import { type Command, Option } from 'commander'
import { InvalidAuthData } from '../auth/auth-data.ts'
import { type AuthSources, DATABASE_SETTING, openSources } from '../auth/auth-sources.ts'
import { createLog } from '../base/log.ts'
import { NotDone } from '../base/result.ts'
import type { Config, KeySetSettings, Problem } from '../config/config.ts'
import { configWarnings, formatProblems, keySetsOf, problemsAt } from '../config/config.ts'
import type { LoadedConfig, LoadOptions } from '../config/load.ts'
import { effectiveSettings, FILE_VARIABLE, loadConfig } from '../config/load.ts'
import { configJsonSchema, FLAGS, SETTINGS } from '../config/settings.ts'
import { FeedClient } from '../credentials/feed/feed-client.ts'
import { fetchJwks, importKeys } from '../keys/jwk-set.ts'
import { openRooms } from '../rooms.ts'
import { activeContextOf, type CertificateSets, FEED_SET, issuerSetName } from '../tls/certificates.ts'
import { type CommandIo, describe, type Flags, UsageFailure } from './command-io.ts'

/** Flags of settings, which commander names in camel case. */
export type SettingFlags = Readonly<Record<string, unknown>>
type Options = Pick<LoadOptions, 'needsUpstream'>
type CheckFlags = SettingFlags & Flags<never, never, 'files' | 'fetch' | 'strict' | 'json'>

const SETTINGS_HELP = `
Every setting is also a flag and an environment variable: token.lifetimeSeconds is
--token-lifetime-seconds and SIDECAR_TOKEN_LIFETIME_SECONDS. Flags win over the environment,
the environment over the file. "config show" lists the effective settings,
docs/configuration.md all of them.`

export function addSettingFlags(command: Command): Command {
  const settings = SETTINGS.map(({ flag, description }) => new Option(`${flag} <value>`, description))
  command
    .option('--config <file>', `settings file in YAML (environment: ${FILE_VARIABLE})`)
    .option('--upstream-url <url>', 'short for one upstream at prefix /')
    .option('--port <port>', 'short for --listen-port')
  for (const option of settings) {
    command.addOption(option)
  }
  // Of these, help shows only --admin-port.
  // They are not hidden before: commander suggests only visible flags for mistyped ones.
  command.addHelpText('before', () => {
    for (const option of settings) {
      option.hideHelp(option.long !== '--admin-port')
    }
    return ''
  })
  return command.addHelpText('after', SETTINGS_HELP)
}

export function readSettings(flags: SettingFlags, { env }: Pick<CommandIo, 'env'>, options?: Options) {
  const text = (name: string) => {
    const value = flags[name]
    return typeof value === 'string' ? value : undefined
  }
  const given = Object.fromEntries(FLAGS.map((flag) => [flag, text(new Option(flag).attributeName())]))
  return loadConfig({ file: text('config'), env, flags: given, ...options })
}

export function configFromFlags(flags: SettingFlags, io: Pick<CommandIo, 'env'>, options?: Options) {
  const loaded = readSettings(flags, io, options)
  if (!loaded.ok) {
    throw new UsageFailure(formatProblems(loaded.problems))
  }
  return loaded.value
}

const withOrigins = (problems: readonly Problem[], { originOf }: LoadedConfig) =>
  problems.map((problem) => ({ ...problem, origin: originOf(problem.path) }))

export const rethrowAsUsage = (loaded: LoadedConfig) => (error: unknown) => {
  if (!(error instanceof InvalidAuthData)) {
    throw error
  }
  throw new UsageFailure(formatProblems(withOrigins(error.problems, loaded)))
}

export function configCommand(io: CommandIo): Command {
  const example = 'storage-auth-sidecar config show --config sidecar.yaml'
  const group = io.command('config', 'validate and explain the settings', example)
  const printJson = (value: unknown) => io.print(JSON.stringify(value, null, 2))

  const check = describe(
    group.command('check'),
    'validate the settings; every problem is reported at once',
    'storage-auth-sidecar config check --config sidecar.yaml --files --strict',
    'SIDECAR_UPSTREAM_URL=http://127.0.0.1:9000 storage-auth-sidecar config check --json',
  )
    .option('--files', 'validate keys, credentials, revocations and certificates, too')
    .option('--fetch', 'also fetch each key set, and the feed, once, and say whether it is good')
    .option('--strict', 'fail on warnings, too')
    .option('--json', 'print the outcome as JSON')
  addSettingFlags(check).action(async (flags: CheckFlags) => {
    const { problems, warnings, notes } = await checkSettings(flags, io)
    const hasFailed = problems.length > 0 || (flags.strict === true && warnings.length > 0)
    for (const warning of warnings) {
      io.warn(warning)
    }
    if (flags.json) {
      printJson({ ok: !hasFailed, problems, warnings })
    }
    if (problems.length > 0) {
      throw new UsageFailure(formatProblems(problems))
    }
    if (hasFailed) {
      throw new UsageFailure(`warnings, which fail with --strict: ${warnings.length}`)
    }
    if (!flags.json) {
      io.print(['the configuration is valid', ...notes].join('\n'))
    }
  })

  const show = describe(
    group.command('show'),
    'print every effective setting and where it came from',
    example,
    `${example} --json | jq '."listen.port"'`,
  ).option('--json', 'print one JSON object by setting')
  addSettingFlags(show).action((flags: CheckFlags) => {
    const effective = effectiveSettings(configFromFlags(flags, io))
    if (flags.json) {
      return printJson(Object.fromEntries(effective.map(({ setting, ...rest }) => [setting, rest])))
    }
    return io.printTable(effective, {
      SETTING: ({ setting }) => setting,
      VALUE: ({ value }) => JSON.stringify(value),
      FROM: ({ origin }) => origin,
    })
  })

  describe(
    group.command('schema'),
    'print a JSON Schema of the settings file',
    'storage-auth-sidecar config schema > sidecar.schema.json',
  ).action(() => io.print(configJsonSchema().trimEnd()))
  return group
}

async function checkSettings(flags: CheckFlags, io: CommandIo) {
  const loaded = readSettings(flags, io)
  if (!loaded.ok) {
    return { problems: loaded.problems, warnings: [], notes: [] }
  }
  const { config } = loaded.value
  if (!flags.files && !flags.fetch) {
    return { problems: [], warnings: configWarnings(config), notes: [] }
  }
  const { problems, warnings, certificateSets } = await checkFiles(config)
  const keySets = flags.fetch ? keySetsOf(config) : []
  const checks = await Promise.all(keySets.map((keySet) => checkKeySet(keySet, certificateSets)))
  if (flags.fetch && !problems.some(({ path }) => path.startsWith('credentials.feed'))) {
    checks.push(await checkFeed(config, certificateSets))
  }
  return {
    problems: withOrigins([...problems, ...checks.flatMap((check) => check.problems)], loaded.value),
    warnings,
    notes: checks.flatMap(({ notes }) => notes),
  }
}

/** Reads every file that the settings name, and checks the tables of the database. Never rejects. */
async function checkFiles(config: Config) {
  const log = createLog('silent', { write() {} })
  const opened = await openSources({ config, log, now: Date.now })
  const withRooms = { ...opened, ...(await checkRooms(config, opened)) }
  const { postgres } = config.credentials
  if (postgres === undefined || opened.database === undefined) {
    return withRooms
  }
  const { checkDatabase } = await import('../credentials/postgres/tables.ts')
  try {
    const checked = await checkDatabase(postgres.urlFile)
    if (checked.ok) {
      return withRooms
    }
    return {
      ...withRooms,
      problems: [...withRooms.problems, ...problemsAt(DATABASE_SETTING, checked.problems)],
    }
  } catch (error) {
    if (!(error instanceof NotDone)) {
      throw error
    }
    return { ...withRooms, warnings: [...withRooms.warnings, `not checked: ${error.message}`] }
  }
}

/** Returns the problems and warnings of the sources, and of the files of the rooms. */
async function checkRooms(config: Config, sources: AuthSources) {
  const log = createLog('silent', { write() {} })
  const hasCredentials = (accountId: string) => sources.credentialsFile?.current().hasAccount(accountId)
  const rooms = await openRooms({ config, log, now: Date.now, hasCredentials, onReload() {} })
  return {
    problems: [...sources.problems, ...rooms.problems],
    warnings: [...sources.warnings, ...rooms.warnings],
  }
}

/** Fetches a key set once. Does nothing if its CA file is unusable, which `checkFiles` reports. */
async function checkKeySet({ setting, ...keySet }: KeySetSettings, certificateSets: CertificateSets) {
  const path = `${setting}.jwksUrl`
  const unusable = (texts: readonly string[]) => {
    const messages = texts.map((text) => `the JWK Set ${text}`)
    return { problems: problemsAt(path, messages), notes: [] }
  }
  const certificates = certificateSets.get(issuerSetName(setting))
  if (keySet.caFile !== undefined && certificates === undefined) {
    return { problems: [], notes: [] }
  }
  const fetched = await fetchJwks({ ...keySet, secureContext: activeContextOf(certificates) })
  if (!fetched.ok) {
    return unusable(fetched.problems)
  }
  const { keys, warnings } = await importKeys(fetched.value, keySet.algorithms)
  if (keys.length === 0) {
    return unusable(warnings)
  }
  const notes = [`${keys.length} of its keys can be used`, ...warnings]
  return { problems: [], notes: notes.map((note) => `${path}: ${note}`) }
}

/** Asks a hub once. */
async function checkFeed({ credentials: { feed } }: Config, certificateSets: CertificateSets) {
  if (feed === undefined) {
    return { problems: [], notes: [] }
  }
  const path = 'credentials.feed.url'
  const secureContext = activeContextOf(certificateSets.get(FEED_SET))
  const client = new FeedClient({ ...feed, secureContext }, Math.random)
  const answer = await client.fetch({ since: undefined, waitSeconds: 0 }, new AbortController().signal)
  client.disconnect()
  if (!answer.ok) {
    return { problems: problemsAt(path, [`the feed ${answer.error.problem}`]), notes: [] }
  }
  const { update } = answer.value
  if (update === undefined) {
    return { problems: [], notes: [] } // never: no version was named
  }
  const { credentials, revocations } = update
  const note = `${credentials.set.length} credentials, ${revocations.set.length} revocations`
  return { problems: [], notes: [`${path}: ${note}`] }
}
