import { execFileSync, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { runProgram } from '../support/program.ts'

const LINES = [
  ['to', 'token'],
  ['credentials re', 'remove restrict'],
  ['credentials add --ac', '--access-key --account'],
  ['config check --listen-po', '--listen-port'],
  ['completion ', 'bash fish zsh'],
  ['credentials add --file ', ''],
] as const

/** Each prints the words offered at the end of its last argument. */
const SHELLS = {
  bash: [
    '-c',
    `source "$1"
     COMP_WORDS=(program $2)
     [[ $2 == *' ' ]] && COMP_WORDS+=('')
     COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 ))
     _storage_auth_sidecar
     echo "\${COMPREPLY[@]}"`,
    'bash',
  ],
  fish: ['-c', `source $argv[1]; complete -C "storage-auth-sidecar $argv[2]"`],
}

const skipWithout = (shell: string) =>
  spawnSync(shell, ['--version']).error === undefined ? false : `${shell} is not installed`

for (const [shell, args] of Object.entries(SHELLS)) {
  const skip = skipWithout(shell)
  t.test(`${shell} completes commands, flags and choices`, { skip }, async (t) => {
    const { stdout, code } = await runProgram(t, ['completion', shell])
    t.equal(code, 0)
    const script = join(t.testdir({ script: stdout }), 'script')
    for (const [line, words] of LINES) {
      const printed = execFileSync(shell, [...args, script, line]).toString()
      const wanted = words.split(' ').filter(Boolean)
      const offered = printed.split(/\s+/).filter(Boolean).sort()
      // fish adds files by itself.
      t.same(shell === 'fish' ? wanted.filter((word) => offered.includes(word)) : offered, wanted, line)
    }
  })
}

t.test('zsh loads its script', { skip: skipWithout('zsh') }, async (t) => {
  const { stdout } = await runProgram(t, ['completion', 'zsh'])
  const script = join(t.testdir({ script: stdout }), 'script')
  const printed = execFileSync('zsh', ['-fc', `source ${script}; echo $_comps[storage-auth-sidecar]`])
  t.match(printed.toString(), '_storage_auth_sidecar')
})

t.test('another shell is refused', async (t) => {
  t.match(await runProgram(t, ['completion', 'tcsh']), { code: 2, stderr: /bash, zsh, fish/ })
})
