/**
 * The README's commands as written and in order, in a fresh clone.
 * Its packages are this checkout's: `.ci/run` installs them.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import { tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { listen } from '../support/listen.ts'
import { watchProcess } from '../support/other-programs.ts'

const README = readFileSync('README.md', 'utf8')

/** npm's global directory of the stranger. */
const NPM_PREFIX = mkdtempSync(join(tmpdir(), 'readme-npm-'))
t.teardown(() => rmSync(NPM_PREFIX, { recursive: true, force: true }))

t.test('the README commands in a fresh clone', { skip: missing() }, async (t) => {
  const clone = bareClone(t)
  const shell = openShell(t, clone)

  await t.test('npm start builds and runs, and every printed command works', async (t) => {
    const demo = await startDemo(t, clone, block('Try it', 'sh', 0))
    const expected: Record<string, (t: Test, output: string) => unknown> = {
      'Get a token': (t, output) => t.equal(output, ''),
      'Put a file': (t, output) => t.match(JSON.parse(output), { key: '/greetings/hello.txt' }),
      'Get it back': (t, output) => t.equal(output, 'Hello, storage.\n'),
      'Ask how many seconds': (t, output) => {
        const { expirationSec } = JSON.parse(output)
        t.ok(expirationSec > 86_000 && expirationSec <= 86_400, `${expirationSec} seconds`)
      },
      'Be refused': (t, output) => t.match(output, /^HTTP\/1\.1 400 [\s\S]*"code":"InvalidToken"/),
      'Share the file': (t, output) => t.equal(output, ''),
      'Disable the credential': (t, output) => t.match(output, /"code":"InvalidToken"/),
      'Enable it again': (t, output) => t.match(output, /Hello, storage\.\n$/),
      'See what the sidecar counted': (t, output) => {
        t.match(output, /^auth_sidecar_tokens_issued_total 1$/m)
        t.match(output, /^auth_sidecar_token_checks_total\{[^}]*reason="missing"[^}]*\} 1$/m)
      },
    }
    const lines = [...demo.printed.matchAll(/^# \d\. (.*)\n(.*)$/gm)]
    t.equal(lines.length, Object.keys(expected).length)
    for (const [, what = '', command = ''] of lines) {
      const check = Object.entries(expected).find(([begins]) => what.startsWith(begins))?.[1]
      const { output, code } = await shell.run(command)
      t.equal(code, 0, what)
      await t.test(what, async (t) => {
        if (check === undefined) {
          t.fail('not expected')
        } else {
          check(t, output)
        }
      })
    }

    const refused = await shell.run(demo.onItsPorts(block('Try it', 'sh', 1)))
    for (const line of block('Try it', '', 0).split('\n')) {
      t.ok(refused.output.split(/\r?\n/).includes(line), line)
    }
    const accepted = await shell.run(demo.onItsPorts(block('Try it', 'sh', 2)))
    t.equal(accepted.output.trimEnd(), block('Try it', '', 1))

    t.equal(await demo.stop('SIGINT'), 0, 'Ctrl-C ends it without an error')
  })

  await t.test('the sidecar runs in front of a service', async (t) => {
    const seen: IncomingHttpHeaders[] = []
    const service = createServer((request, response) => {
      seen.push(request.headers)
      response.end('from the service')
    })
    const port = await listen(t, service)

    const section = 'In front of your own service'
    t.equal((await shell.run(block(section, 'sh', 0))).code, 0, 'the command')
    t.equal((await shell.run(block(section, 'sh', 1))).code, 0, 'keys and credentials')
    writeFileSync(join(clone, 'etc/sidecar.yaml'), block(section, 'yaml', 0).replace('9000', `${port}`))
    const [check = '', serve = ''] = block(section, 'sh', 2).split('\n')
    t.match(await shell.run(check), { code: 0 })

    const env = { SIDECAR_LISTEN_PORT: '0', SIDECAR_ADMIN_PORT: '0', SIDECAR_SHUTDOWN_LAME_DUCK_SECONDS: '0' }
    const sidecar = inGroup(t, serve, clone, env)
    const log = await sidecar.until((text) => text.match(/"msg":"listening"/g)?.length === 2)
    const listening = log
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const data = listening.find(({ listener }) => listener === 'data')
    const passed = await shell.run(block(section, 'sh', 3).replaceAll('8080', `${data?.port}`))
    t.match(passed.output, /^HTTP\/1\.1 200 [\s\S]*from the service$/)
    const token = (await shell.run('printf %s "$TOKEN"')).output

    const url = `http://127.0.0.1:${data?.port}/any/path`
    t.equal((await fetch(url)).status, 400)
    const answer = await fetch(url, { headers: { Authorization: `Bearer ${token}` } })
    t.equal(await answer.text(), 'from the service')
    t.equal(seen.length, 2)
    t.equal(seen[0]?.['x-authenticated-account-id'], 'acme')
    t.notOk(seen[0]?.authorization)
    const { accessKey } = JSON.parse(readFileSync(join(clone, 'etc/acme.json'), 'utf8'))
    t.match(await shell.run(block(section, 'sh', 4).replace('AK…', accessKey)), { code: 0 })
    await eventually(
      async () => (await fetch(url, { headers: { Authorization: `Bearer ${token}` } })).status === 400,
      'the revocation',
    )
    t.equal(await sidecar.stop('SIGTERM'), 0)
  })
})

/** The nth fenced block of a language in a section, without its fences. */
function block(section: string, language: string, nth: number): string {
  const text = README.split(/^## /m).find((part) => part.startsWith(`${section}\n`)) ?? ''
  const blocks = [...text.matchAll(/^```(\w*)\n([\s\S]*?)\n```$/gm)].filter(([, lang]) => lang === language)
  const found = blocks[nth]?.[2]
  if (found === undefined) {
    throw new Error(`README: no block ${nth} of '${language}' in '${section}'`)
  }
  return found
}

/** Why this cannot be tried on this machine, if it cannot. */
function missing(): string | false {
  for (const [tool, args] of [
    ['git', ['rev-parse', 'HEAD']],
    ['curl', ['--version']],
    ['sh', ['-c', 'exit 0']],
  ] as const) {
    if (spawnSync(tool, args).status !== 0) {
      return `needs ${tool}${tool === 'git' ? ', and a git checkout' : ''}`
    }
  }
  return false
}

/** A clone outside of this checkout, where nothing is built. */
function bareClone(t: Test): string {
  const directory = mkdtempSync(join(tmpdir(), 'readme-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const clone = join(directory, 'clone')
  const { status, stderr } = spawnSync('git', ['clone', '--quiet', resolve('.'), clone], { encoding: 'utf8' })
  if (status !== 0) {
    throw new Error(stderr)
  }
  symlinkSync(resolve('node_modules'), join(clone, 'node_modules'))
  return clone
}

/**
 * Arguments of `env`: the environment of a new terminal. Nothing of the test run, its npm
 * or a sidecar's settings is in it, except where npm finds packages. `env -i`, since tap
 * adds what measures coverage to the environment of every process, and the compiler does not start under it.
 */
function strangersEnvironment(more: Readonly<Record<string, string>> = {}): string[] {
  const kept = Object.entries(process.env).filter(
    ([name]) =>
      !/^(_?tap|npm_|node_|sidecar_|init_cwd)/i.test(name) ||
      /^npm_config_(cache|registry|userconfig)$/i.test(name),
  )
  const entries = process.env['PATH']?.split(delimiter) ?? []
  const path = entries.filter((entry) => !entry.includes('node_modules'))
  const all = {
    ...Object.fromEntries(kept),
    PATH: [join(NPM_PREFIX, 'bin'), ...path].join(delimiter),
    npm_config_prefix: NPM_PREFIX,
    npm_config_prefer_offline: 'true',
    ...more,
  }
  return ['-i', ...Object.entries(all).map(([name, value]) => `${name}=${value}`)]
}

/** Runs a command in a process group of its own, as a terminal does, so that signals reach all of it. */
function inGroup(t: Test, command: string, cwd: string, env: Readonly<Record<string, string>> = {}) {
  const child = spawn('env', [...strangersEnvironment(env), 'sh', '-c', `exec ${command}`], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const { ended, stdout, stderr } = watchProcess(t, child)
  const signalGroup = (signal: NodeJS.Signals) => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
      process.kill(-child.pid, signal)
    }
  }
  t.teardown(() => signalGroup('SIGKILL'))
  return {
    /** Resolves with everything on stdout once it satisfies; rejects if the process ends before. */
    async until(satisfies: (stdout: string) => boolean) {
      let isOver = false
      ended.then(() => {
        isOver = true
      })
      await eventually(() => satisfies(stdout()) || isOver, `the output of ${command}`, 120_000)
      if (!satisfies(stdout())) {
        throw new Error(`${command} ended: ${stderr()}`)
      }
      return stdout()
    },
    /** Signals the process group, as a terminal does; resolves with the exit code. */
    async stop(signal: NodeJS.Signals): Promise<number | null> {
      signalGroup(signal)
      return (await ended).code
    },
  }
}

/** Starts the demo as the README says; on free ports, as it then advises, where the usual ones are taken. */
async function startDemo(t: Test, clone: string, command: string) {
  const complete = (stdout: string) => /^# 9\. .*\n.*\n/m.test(stdout)
  let demo = inGroup(t, command, clone)
  const printed = await demo.until(complete).catch((fault: Error) => {
    if (!fault.message.includes('is in use; choose another with')) {
      throw fault
    }
    demo = inGroup(t, `${command} -- --port 0 --admin-port 0`, clone)
    return demo.until(complete)
  })
  const port = /http:\/\/127\.0\.0\.1:(\d+)\/v2\/auth\/token/.exec(printed)?.[1] ?? ''
  return { printed, stop: demo.stop, onItsPorts: (text: string) => text.replace(':8080', `:${port}`) }
}

/** A shell that stays open, as a terminal does: variables set by one command are there for the next. */
function openShell(t: Test, cwd: string) {
  const shell = spawn('env', [...strangersEnvironment(), 'sh'], { cwd, stdio: ['pipe', 'pipe', 'inherit'] })
  t.teardown(() => shell.kill())
  let output = ''
  shell.stdout.on('data', (chunk) => {
    output += chunk
  })
  const run = async (command: string) => {
    output = ''
    shell.stdin.write(`{ ${command}\n} </dev/null 2>/dev/null\nprintf '<ended %s>' "$?"\n`)
    while (true) {
      const [, text = '', code] = /^([\s\S]*)<ended (\d+)>$/.exec(output) ?? []
      if (code !== undefined) {
        return { output: text, code: Number(code) }
      }
      await once(shell.stdout, 'data')
    }
  }
  return { run }
}
