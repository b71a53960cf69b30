/** `config check | show | schema`, and the settings that commands take as flags. */
import { type Command, Option } from 'commander'
import { checkFiles, InvalidAuthData } from '../auth-data.ts'
import { insecureKeySets } from '../config/config.ts'
import { explain, type LoadedConfig, loadConfig, type NotLoaded } from '../config/load.ts'
import { formatProblems, type Problem } from '../config/problem.ts'
import { configJsonSchema, SETTINGS } from '../config/settings.ts'
import { FILE_VARIABLE, FLAGS } from '../config/sources.ts'
import { checkKeySets } from './check-key-sets.ts'
import { type CommandIo, createCommand, formatTable, printer, UsageFailure, warner } from './command-io.ts'

/** Values of flags by their name in camel case, from commander. */
export type ParsedOptions = Readonly<Record<string, unknown>>

const SETTINGS_HELP = `
Every setting is also a flag and an environment variable: token.lifetimeSeconds is
--token-lifetime-seconds and SIDECAR_TOKEN_LIFETIME_SECONDS. Flags win over the environment,
the environment over the file. "config show" lists the effective settings,
docs/configuration.md all of them.`

/** Adds `--config FILE`, the short flags, and one flag for each setting, which the help leaves out. */
export function addSettingFlags(command: Command): Command {
  command.option('--config <file>', `settings file in YAML (environment: ${FILE_VARIABLE})`)
  command.option('--upstream-url <url>', 'short for one upstream at prefix /')
  command.option('--port <port>', 'short for --listen-port')
  const settings = SETTINGS.map(({ flag, description }) => new Option(`${flag} <value>`, description))
  for (const option of settings) command.addOption(option)
  // Hidden when help is printed and not before, as commander suggests visible flags for mistyped ones.
  command.addHelpText('before', () => {
    for (const option of settings) option.hideHelp(option.long !== '--admin-port')
    return ''
  })
  return command.addHelpText('after', SETTINGS_HELP)
}

/** Loads the settings for a command that has {@link addSettingFlags}. `needsUpstream`: false if it forwards nothing. */
export function loadSettings(options: ParsedOptions, io: CommandIo, needsUpstream = true) {
  const flags: Record<string, string> = {}
  for (const flag of FLAGS) {
    const value = options[new Option(flag).attributeName()]
    if (typeof value === 'string') flags[flag] = value
  }
  const file = typeof options['config'] === 'string' ? options['config'] : undefined
  return loadConfig({ file, env: io.env, flags, needsUpstream })
}

/** `opens`: also the files and the database that valid settings name. `fetches`: also the key sets. */
async function problemsOf(loaded: LoadedConfig | NotLoaded, opens: boolean, fetches: boolean) {
  if (!loaded.ok) return { problems: loaded.problems, warnings: [], notes: [] }
  if (!opens) return { problems: [], warnings: insecureKeySets(loaded.config), notes: [] }
  const { problems, warnings } = await checkFiles(loaded.config)
  const fetched = fetches ? await checkKeySets(loaded.config) : { problems: [], notes: [] }
  return { problems: located([...problems, ...fetched.problems], loaded), warnings, notes: fetched.notes }
}

/** With the location of the setting that names the file. */
function located(problems: readonly Problem[], { originOf }: LoadedConfig) {
  return problems.map((problem) => ({ ...problem, origin: originOf(problem.path) }))
}

/** Unusable files count as wrong usage. */
export function asUsage(error: unknown, loaded: LoadedConfig): unknown {
  if (!(error instanceof InvalidAuthData)) return error
  return new UsageFailure(formatProblems(located(error.problems, loaded)))
}

/** @throws UsageFailure with every problem */
export function usable(loaded: LoadedConfig | NotLoaded): LoadedConfig {
  if (!loaded.ok) throw new UsageFailure(formatProblems(loaded.problems))
  return loaded
}

export function configCommand(io: CommandIo): Command {
  const print = printer(io)
  const printJson = (value: unknown) => print(JSON.stringify(value, null, 2))
  const group = createCommand('config', 'validate and explain the settings', io).addHelpText(
    'after',
    SHOW_EXAMPLES,
  )

  const check = group.command('check').description('validate the settings; every problem is reported at once')
  check.option('--files', 'validate keys, credentials, revocations and certificates, too')
  check.option('--fetch', 'also fetch each key set once, and say whether it is good')
  addSettingFlags(check.option('--json', 'print the outcome as JSON'))
    .addHelpText('after', CHECK_EXAMPLES)
    .action(async (options: ParsedOptions) => {
      const loaded = loadSettings(options, io)
      const fetches = options['fetch'] === true
      const opens = options['files'] === true || fetches
      const { problems, warnings, notes } = await problemsOf(loaded, opens, fetches)
      warnings.forEach(warner(io))
      if (options['json']) printJson({ ok: problems.length === 0, problems })
      if (problems.length > 0) throw new UsageFailure(formatProblems(problems))
      if (!options['json']) print(['the configuration is valid', ...notes].join('\n'))
    })

  const show = group.command('show').description('print every effective setting and where it came from')
  addSettingFlags(show.option('--json', 'print one JSON object by setting'))
    .addHelpText('after', SHOW_EXAMPLES)
    .action((options: ParsedOptions) => {
      const effective = explain(usable(loadSettings(options, io)))
      if (options['json']) {
        const entries = effective.map(({ setting, value, origin }) => [setting, { value, origin }])
        return printJson(Object.fromEntries(entries))
      }
      const table = formatTable(effective, {
        SETTING: ({ setting }) => setting,
        VALUE: ({ value }) => JSON.stringify(value),
        FROM: ({ origin }) => origin,
      })
      print(table)
    })

  group
    .command('schema')
    .description('print a JSON Schema of the settings file')
    .addHelpText('after', '\nExamples:\n  storage-auth-sidecar config schema > sidecar.schema.json')
    .action(() => void io.stdout.write(configJsonSchema()))
  return group
}

const CHECK_EXAMPLES = `
Examples:
  storage-auth-sidecar config check --config sidecar.yaml --files
  SIDECAR_UPSTREAM_URL=http://127.0.0.1:9000 storage-auth-sidecar config check --json`

const SHOW_EXAMPLES = `
Examples:
  storage-auth-sidecar config show --config sidecar.yaml
  storage-auth-sidecar config show --config sidecar.yaml --json | jq '."listen.port"'`
