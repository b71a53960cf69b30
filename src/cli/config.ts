/**
 * `config check | show | schema`, and the settings that every command takes as flags.
 *
 * @module
 */
import { Command, Help, Option } from 'commander'
import { configJsonSchema, type Effective, explain } from '../config/explain.ts'
import {
  formatProblems,
  type LoadedConfig,
  type LoadOptions,
  loadConfig,
  type NotLoaded,
} from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { SETTINGS } from '../config/settings.ts'
import { FILE_VARIABLE, UPSTREAM_URL } from '../config/sources.ts'
import { type CommandIo, UsageFailure } from './command-io.ts'

/** What commander parsed: values of flags by their name in camel case. */
export type ParsedOptions = Readonly<Record<string, unknown>>

/** What a command needs of the settings; see {@link LoadOptions}. */
export type SettingNeeds = Pick<LoadOptions, 'needsUpstream'>

const SETTINGS_HELP = `
Every setting is also a flag and an environment variable: token.lifetimeSeconds is
--token-lifetime-seconds and SIDECAR_TOKEN_LIFETIME_SECONDS. Flags win over the environment,
the environment over the file. "config show" lists the settings in force,
docs/configuration.md all of them.`

/**
 * Adds `--config FILE`, `--upstream-url URL` and one flag for each setting. The many are left out of the help
 * but not out of commander's suggestions for mistyped flags.
 */
export function addSettingFlags(command: Command): void {
  command.option('--config <file>', `settings file in YAML (environment: ${FILE_VARIABLE})`)
  command.option(`${UPSTREAM_URL.flag} <url>`, 'short for one upstream at prefix /')
  const perSetting = SETTINGS.map(({ flag, description }) => new Option(`${flag} <value>`, description))
  for (const option of perSetting) command.addOption(option)
  command.addHelpText('after', SETTINGS_HELP)
  command.configureHelp({
    formatHelp(subject, helper) {
      const brief: Help = Object.create(helper)
      brief.visibleOptions = (asked) =>
        helper.visibleOptions(asked).filter((option) => !perSetting.includes(option))
      return Help.prototype.formatHelp.call(brief, subject, brief)
    },
  })
}

/**
 * The configuration for a command that took {@link addSettingFlags}.
 *
 * @throws {UsageFailure} with every mistake in the settings
 */
export function settingsFromCommand(options: ParsedOptions, io: CommandIo, needs: SettingNeeds = {}): Config {
  const loaded = loadSettings(options, io, needs)
  if (!loaded.ok) throw new UsageFailure(formatProblems(loaded.problems))
  return loaded.config
}

/** The command group `config`. */
export function configCommand(io: CommandIo): Command {
  const group = new Command('config').description('validate and explain the settings')
  group.exitOverride().configureOutput({
    writeOut: (text) => io.stdout.write(text),
    writeErr: (text) => io.stderr.write(text),
  })
  group.addHelpText('after', SHOW_EXAMPLES)

  const check = group.command('check').description('validate the settings; every mistake is reported at once')
  check.option('--json', 'print the outcome as JSON')
  addSettingFlags(check)
  check.addHelpText('after', CHECK_EXAMPLES).action((options: ParsedOptions) => {
    const loaded = loadSettings(options, io)
    const problems = loaded.ok ? [] : loaded.problems
    if (options['json']) io.stdout.write(`${JSON.stringify({ ok: loaded.ok, problems }, null, 2)}\n`)
    if (!loaded.ok) throw new UsageFailure(formatProblems(problems))
    if (!options['json']) io.stdout.write('the configuration is valid\n')
  })

  const show = group.command('show').description('print every setting in force and where it came from')
  show.option('--json', 'print one JSON object by setting')
  addSettingFlags(show)
  show.addHelpText('after', SHOW_EXAMPLES).action((options: ParsedOptions) => {
    const loaded = loadSettings(options, io)
    if (!loaded.ok) throw new UsageFailure(formatProblems(loaded.problems))
    const effective: Effective[] = explain(loaded.config, loaded.origins)
    const byName = Object.fromEntries(
      effective.map(({ setting, value, origin }) => [setting, { value, origin }]),
    )
    const rows = effective.map(({ setting, value, origin }) => [setting, JSON.stringify(value), origin])
    const table = formatTable([['SETTING', 'VALUE', 'FROM'], ...rows])
    io.stdout.write(`${options['json'] ? JSON.stringify(byName, null, 2) : table}\n`)
  })

  group
    .command('schema')
    .description('print a JSON Schema of the settings file')
    .addHelpText('after', SCHEMA_EXAMPLES)
    .action(() => {
      io.stdout.write(configJsonSchema())
    })
  return group
}

/** Reads the settings for a command that took {@link addSettingFlags}; mistakes are values. */
export function loadSettings(
  options: ParsedOptions,
  io: CommandIo,
  needs: SettingNeeds = {},
): LoadedConfig | NotLoaded {
  const flags: Record<string, string> = {}
  for (const flag of [UPSTREAM_URL.flag, ...SETTINGS.map((setting) => setting.flag)]) {
    const value = options[new Option(flag).attributeName()]
    if (typeof value === 'string') flags[flag] = value
  }
  const file = typeof options['config'] === 'string' ? options['config'] : undefined
  return loadConfig({ file, env: io.env, flags, ...needs })
}

const CHECK_EXAMPLES = `
Examples:
  storage-auth-sidecar config check --config sidecar.yaml
  SIDECAR_UPSTREAM_URL=http://127.0.0.1:9000 storage-auth-sidecar config check --json`

const SHOW_EXAMPLES = `
Examples:
  storage-auth-sidecar config show --config sidecar.yaml
  storage-auth-sidecar config show --config sidecar.yaml --json | jq '."listen.port"'`

const SCHEMA_EXAMPLES = `
Examples:
  storage-auth-sidecar config schema > sidecar.schema.json`

function formatTable(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]?.map((_, at) => Math.max(...rows.map((row) => String(row[at]).length))) ?? []
  const line = (row: readonly string[]) =>
    row
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join('  ')
      .trimEnd()
  return rows.map(line).join('\n')
}
