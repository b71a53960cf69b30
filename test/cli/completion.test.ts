import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { guide, startStorageApi } from '../../src/cli/demo.ts'
import { eventually } from '../support/eventually.ts'
import { listen } from '../support/listen.ts'
import { runProgram, startProgram } from '../support/program.ts'

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

async function storageApi(t: Test, directory = t.testdir()) {
  const faults: unknown[] = []
  const { url, close } = await startStorageApi(directory, (fault) => faults.push(fault))
  t.teardown(close)
  const call = (method: string, path: string, headers: Record<string, string> = {}, body?: string) => {
    const own = { 'X-Authenticated-Account-Id': 'a', ...headers }
    return fetch(`${url}${path}`, { method, headers: own, ...(body !== undefined && { body }) })
  }
  return { directory, url, call, faults }
}

t.test('a stored object can be read until it is deleted', async (t) => {
  const { call } = await storageApi(t)
  t.equal((await call('PUT', '/photos/cat%2F1', {}, 'a cat')).status, 201)
  const whole = await call('GET', '/photos/cat%2F1')
  t.equal(await whole.text(), 'a cat')
  t.equal((await call('HEAD', '/photos/cat%2F1')).headers.get('content-length'), '5')
  t.equal((await call('GET', '/photos/cat/1')).status, 404, 'keys are compared byte for byte')
  t.equal((await call('DELETE', '/photos/cat%2F1')).status, 204)
  t.equal((await call('GET', '/photos/cat%2F1')).status, 404)
})

t.test('accounts have separate objects', async (t) => {
  const { call } = await storageApi(t)
  await call('PUT', '/a', { 'X-Authenticated-Account-Id': 'other' }, 'x')
  t.equal((await call('GET', '/a')).status, 404)
})

t.test('a request without an identity and an unknown method are refused', async (t) => {
  const { url, call } = await storageApi(t)
  t.equal((await fetch(url)).status, 403)
  const post = await call('POST', '/k')
  t.strictSame([post.status, post.headers.get('allow')], [405, 'GET, HEAD, PUT, DELETE'])
})

t.test('an aborted upload stores nothing, and an error is reported once', async (t) => {
  const { url, directory, call, faults } = await storageApi(t)
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  socket.write('PUT /k HTTP/1.1\r\nHost: a\r\nX-Authenticated-Account-Id: a\r\nContent-Length: 9\r\n\r\nabc')
  await eventually(() => readdirSync(directory).length > 0, 'the upload')
  socket.destroy()
  t.equal((await call('GET', '/k')).status, 404)
  t.strictSame(faults, [])
  await call('PUT', '/k', {}, 'x')
  const [account = ''] = readdirSync(directory)
  rmSync(join(directory, account), { recursive: true })
  writeFileSync(join(directory, account), '')
  t.equal((await call('PUT', '/k', {}, 'x')).status, 500)
  t.equal(faults.length, 1)
})

const ANY_PORT = ['demo', '--port', '0', '--admin-port', '0']

/** Starts the demo and waits for its lines. */
async function startDemo(t: Test, cwd: string) {
  const demo = startProgram(t, ANY_PORT, { cwd })
  await demo.until(() => /auth_sidecar_token'/.test(demo.stdout()), 'the lines')
  const login = JSON.parse(/-d '(.*?)'/.exec(demo.stdout())?.[1] ?? '')
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(demo.stdout())?.[0] ?? ''
  const stop = async () => {
    demo.child.kill('SIGINT')
    t.match(await demo.ended, { code: 0 })
  }
  const logIn = async () => {
    const answer = await fetch(`${url}/v2/auth/token`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(login),
    })
    const { token } = (await answer.json()) as { token: string }
    return { Authorization: `Bearer ${token}` }
  }
  return { url, login, logIn, stop }
}

t.test('each start creates a new secret, keeps the objects, and is readable by the owner only', async (t) => {
  const cwd = t.testdir()
  mkdirSync(join(cwd, '.sidecar'), { mode: 0o755 })
  const first = await startDemo(t, cwd)
  await fetch(`${first.url}/k`, { method: 'PUT', headers: await first.logIn(), body: 'kept' })
  await first.stop()
  const second = await startDemo(t, cwd)
  t.not(first.login.secret, second.login.secret)
  t.equal(await (await fetch(`${second.url}/k`, { headers: await second.logIn() })).text(), 'kept')
  await second.stop()
  const modes = { '.': 0o700, keys: 0o700, objects: 0o700, 'credentials.yaml': 0o600, 'sidecar.yaml': 0o600 }
  for (const [name, mode] of Object.entries(modes))
    t.equal(statSync(join(cwd, '.sidecar', name)).mode & 0o777, mode, name)
})

t.test('a port in use is reported in one line, and nothing is written', async (t) => {
  const cwd = t.testdir()
  const port = await listen(t, createServer())
  const { code, stderr } = await runProgram(t, ['demo', '--port', '0', '--admin-port', `${port}`], { cwd })
  t.equal(code, 1)
  t.equal(stderr, `port ${port} is in use; choose another with --admin-port (0: any free one)\n`)
  t.notOk(existsSync(join(cwd, '.sidecar')))
  t.equal((await runProgram(t, ['demo', '--port', '65536'], { cwd })).code, 2)
})

t.test('the printed commands are safe in a shell with any path', async (t) => {
  const at = { address: '127.0.0.1', port: 1, family: 'IPv4' }
  const login = { accountId: 'demo', accessKey: 'k', secret: 's' }
  const files = { sampleFile: "/it's/a file", credentialsFile: '/a file' }
  const lines = guide({ login, ...files }, { data: at, admin: at }).split('\n')
  for (const line of lines.filter((line) => line.startsWith('#'))) t.match(line, /^# [\w .,:/-]+$/)
  t.ok(lines.some((line) => line.includes(String.raw`-T '/it'\''s/a file' `)))
})
