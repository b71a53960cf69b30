/**
 * docs/getting-started.md as its reader follows it: every block from the second step on, as it stands, in one shell,
 * with a real rclone on both sides. Only the ports are others.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePorts } from '../support/free-port.ts'

const GUIDE = readFileSync('docs/getting-started.md', 'utf8')

/** The program's name on the path, run from the sources. */
const PROGRAM = `#!/bin/sh
exec env -u NODE_OPTIONS '${process.execPath}' --import='${import.meta.resolve('ts-blank-space/register')}' '${resolve('src/main.ts')}' "$@"
`

/** How the shell says that a command has ended. */
const ENDED = /^([\s\S]*)<ended (\d+)>$/

t.test('the first step installs what the package is called and how it is numbered', async (t) => {
  const { name, version } = JSON.parse(readFileSync('package.json', 'utf8'))
  t.ok(GUIDE.includes(`./${name}-${version}.tgz`))
})

t.test('every other step does what is said of it', { skip: missing() }, async (t) => {
  const [service = 0, data = 0, admin = 0] = await freePorts(3)
  const ownPorts = (text: string) =>
    text.replaceAll('9000', `${service}`).replaceAll('8080', `${data}`).replaceAll('8081', `${admin}`)
  const shell = openShell(t)
  const steps = [...GUIDE.matchAll(/^```(\w*)\n([\s\S]*?)\n```$/gm)].slice(1)
  let output = ''
  let compared = 0
  for (const [, language = '', block = ''] of steps) {
    if (language !== 'sh') {
      for (const line of block.split('\n')) {
        compared++
        const wanted = line.split('…')
        const found = output.split(/\r?\n/).some((got) => wanted.every((part) => got.includes(part)))
        t.ok(found, `${line} in ${output.slice(0, 500)}`)
      }
      continue
    }
    const command = ownPorts(block)
    const [last = ''] = command.split('\n').slice(-1)
    if (!/^(?:rclone|storage-auth-sidecar) serve /.test(last)) {
      const { code, output: all } = await shell.run(command)
      t.equal(code, command.includes('token inspect') ? 1 : 0, command)
      output = all
      continue
    }
    const before = command.slice(0, -last.length).trimEnd()
    if (before !== '') t.equal((await shell.run(before)).code, 0, before)
    shell.start(last)
    const port = last.startsWith('rclone') ? service : data
    await eventually(() => fetch(`http://127.0.0.1:${port}/`).then(Boolean, () => false), last)
  }
  t.equal(compared, 13, 'lines of output that the guide shows')
})

function missing(): string | false {
  if (spawnSync('curl', ['--version']).status !== 0) return 'curl is not on this machine'
  const { status, stdout } = spawnSync('rclone', ['help', 'backend', 'webdav'], { encoding: 'utf8' })
  return status === 0 && stdout.includes('bearer-token-command') ? false : 'rclone is not on this machine'
}

/** A shell that stays open in an empty directory, with the program on its path. */
function openShell(t: Test) {
  const directory = mkdtempSync(join(tmpdir(), 'getting-started-'))
  const bin = t.testdir({ 'storage-auth-sidecar': PROGRAM })
  chmodSync(join(bin, 'storage-auth-sidecar'), 0o755)
  const kept = Object.entries(process.env).filter(([name]) => !/^(?:_?tap|sidecar_|rclone_)/i.test(name))
  const env = {
    ...Object.fromEntries(kept),
    HOME: directory, // no rclone.conf, no .curlrc
    PATH: `${bin}${delimiter}${process.env['PATH']}`,
  }
  const started: ChildProcess[] = []
  t.teardown(async () => {
    for (const child of [...started, shell]) {
      child.kill('SIGKILL')
      if (child.exitCode === null && child.signalCode === null) await once(child, 'close')
    }
    rmSync(directory, { recursive: true, force: true })
  })
  const shell = spawn('env', ['-u', 'NODE_OPTIONS', 'sh'], {
    cwd: directory,
    env,
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  let output = ''
  shell.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  return {
    /** Runs commands to their end; `code` is that of the first one that failed. */
    async run(command: string): Promise<{ output: string; code: number }> {
      output = ''
      const failing = command.includes('<<') ? command : command.replaceAll(/\n(?=\S)/g, ' &&\n')
      shell.stdin.write(`{ ${failing}\n}\nprintf '<ended %s>' "$?"\n`)
      await eventually(() => ENDED.test(output), command)
      const [, text = '', code] = ENDED.exec(output) ?? []
      return { output: text, code: Number(code) }
    },
    /** Starts what stays. */
    start(command: string): void {
      const args = ['-u', 'NODE_OPTIONS', 'sh', '-c', `exec ${command}`]
      started.push(spawn('env', args, { cwd: directory, env, stdio: 'ignore' }))
    },
  }
}
