/** `completion bash|zsh|fish`: a script that completes commands and flags, generated from the tree of commands. */
import { Argument, type Command } from 'commander'
import type { CommandIo } from './command-io.ts'

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

/** A subcommand stands before its group, as shells take the first pattern that matches. */
function choicesOf(command: Command, wordsBefore: string): Choice[] {
  const help = command.createHelp()
  const subcommands = help.visibleCommands(command)
  const flags = help.visibleOptions(command).flatMap(({ long }) => long ?? [])
  const values = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices)
  const words = [...subcommands.map((subcommand) => subcommand.name()), ...values, ...flags].join(' ')
  const inner = subcommands.flatMap((one) => choicesOf(one, `${wordsBefore}${one.name()} `))
  return [...inner, [wordsBefore, words]]
}

/** Flags are offered after `-`. Where no word fits, files are, as for the value of a flag. */
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
