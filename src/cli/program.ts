/** The commands, and their completion in a shell. Exit codes: 0 done, 1 failed, 2 bad usage or settings. */
import { Argument, type Command, CommanderError } from 'commander'
import { fileErrorText } from '../files/files.ts'
import { LogDestination } from '../log.ts'
import { VERSION } from '../version.ts'
import { CommandFailure, CommandIo } from './command-io.ts'
import type { ServingProcess, Signals } from './serve.ts'

export async function runProgram(signals: Signals): Promise<void> {
  // The event loop may run empty before the command ends. `process.exitCode` would apply to `help`, too.
  process.once('beforeExit', () => process.exit(1))
  process.on('SIGUSR1', () => {}) // else Node opens its inspector, which runs code of any process of the pod
  let stdoutError: string | undefined
  // A closed stdout does not end the process, but is reported: the lost output may be a new secret.
  // The first use of `process.stdout` also makes a pipe non-blocking, which the log needs.
  process.stdout.on('error', (error) => (stdoutError ??= fileErrorText(error)))
  process.stderr.on('error', () => {})
  const destination = new LogDestination()
  const code = await runCommand({ signals, destination }).then(() => 0, exitCodeOf)
  await destination.close()
  // A pager may read slowly. The wait ends when the pager ends.
  if (process.stdout.writableLength > 0) await new Promise((resolve) => process.stdout.write('', resolve))
  if (stdoutError === undefined || code !== 0) process.exit(code)
  process.stderr.write(`stdout cannot be written: ${stdoutError}\n`)
  process.exit(1)
}

async function runCommand(serving: ServingProcess): Promise<void> {
  const io = new CommandIo(process)
  const description = 'Issues, checks and caches Account API tokens in front of a storage service.'
  const examples = ['demo', 'serve --config sidecar.yaml', 'help credentials']
  const lines = examples.map((example) => `storage-auth-sidecar ${example}`)
  const program = io.command('storage-auth-sidecar', description, ...lines).version(VERSION)
  // Loaded on demand: all modules together cost a sidecar memory and start-up time.
  const commands: Readonly<Record<string, () => Promise<Command>>> = {
    serve: async () => (await import('./serve.ts')).serveCommand(io, serving),
    demo: async () => (await import('./demo.ts')).demoCommand(io, serving),
    config: async () => (await import('./config.ts')).configCommand(io),
    keys: async () => (await import('./keys.ts')).keysCommand(io),
    credentials: async () => (await import('./credentials.ts')).credentialsCommand(io),
    revocations: async () => (await import('./credentials.ts')).revocationsCommand(io),
    check: async () => (await import('./check-deployment.ts')).checkCommand(io),
    token: async () => (await import('./token.ts')).tokenCommand(io),
    completion: async () => completionCommand(io),
    worker: async () => (await import('./serve.ts')).workerCommand(serving),
  }
  const name = process.argv[2] ?? ''
  const needsAll = !Object.hasOwn(commands, name) || name === 'completion'
  for (const load of needsAll ? Object.values(commands) : [commands[name]]) {
    const command = await load?.()
    if (command !== undefined) program.addCommand(command, { hidden: command.name() === 'worker' })
  }
  await program.parseAsync()
}

function exitCodeOf(error: Error): number {
  // Commander has printed its own message. A request for help or the version is not an error.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
  process.stderr.write(`${error.message}\n`)
  return error instanceof CommandFailure ? error.exitCode : 1
}

export function completionCommand(io: CommandIo): Command {
  return io
    .command(
      'completion',
      'print a script that completes commands and flags in your shell',
      '# In the start file of the shell:',
      'source <(storage-auth-sidecar completion bash)',
      'source <(storage-auth-sidecar completion zsh)',
      'storage-auth-sidecar completion fish | source',
    )
    .addArgument(new Argument('<shell>', 'the shell').choices(['bash', 'zsh', 'fish']))
    .action((shell: string, _options: object, { parent }: Command) => {
      const choices = parent === null ? [] : choicesOf(parent, '')
      io.print(shell === 'fish' ? fishScript(choices) : bashScript(choices, shell === 'zsh'))
    })
}

type Choice = readonly [wordsBefore: string, words: string]

/** A subcommand precedes its group, because shells take the first pattern that matches. */
function choicesOf(command: Command, wordsBefore: string): Choice[] {
  const help = command.createHelp()
  const subcommands = help.visibleCommands(command)
  const flags = help.visibleOptions(command).flatMap(({ long }) => long ?? [])
  const values = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices)
  const words = [...subcommands.map((subcommand) => subcommand.name()), ...values, ...flags].join(' ')
  const inner = subcommands.flatMap((one) => choicesOf(one, `${wordsBefore}${one.name()} `))
  return [...inner, [wordsBefore, words]]
}

/** Offers flags only after `-`, and files where no word matches, such as for the value of a flag. */
const bashScript = (choices: readonly Choice[], isZsh: boolean) => `
${isZsh ? 'autoload -U +X compinit bashcompinit && compinit && bashcompinit' : ''}
_storage_auth_sidecar() {
  local words current="\${COMP_WORDS[COMP_CWORD]}" without='-*'
  case "\${COMP_WORDS[*]:1:COMP_CWORD-1} " in
${choices.map(([before, words]) => `    '${before}'*) words='${words}' ;;`).join('\n')}
  esac
  [[ $current == -* ]] && without=''
  COMPREPLY=($(compgen -W "$words" -X "$without" -- "$current"))
}
complete -o default -F _storage_auth_sidecar storage-auth-sidecar`

const fishScript = (choices: readonly Choice[]) => `
function __storage_auth_sidecar
  set -l words (commandline -opc)
  switch (string join ' ' -- $words[2..])' '
${choices.map(([before, words]) => `    case '${before}*'\n      printf '%s\\n' ${words}`).join('\n')}
  end
end
complete -c storage-auth-sidecar -a '(__storage_auth_sidecar)'`
