/**
 * Clients that can send a name and a password alone, with HTTP Basic (docs/standard-clients.md):
 * against Apache's mod_dav, and rclone's server for restic; and a browser.
 */
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { APACHE, apacheConfig } from '../support/apache.ts'
import { NO_BROWSER, startBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

t.setTimeout(240_000)

interface Run {
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  readonly input?: string
}

/** Runs a program to its end; not synchronously, because the sidecar is in this process. */
async function run(t: Test, command: string, args: readonly string[], { env, cwd, input = '' }: Run = {}) {
  const child = spawn(command, args, { cwd, env: { ...process.env, ...env } })
  child.stdin.end(input)
  const { ended, stdout, stderr } = watchProcess(t, child)
  const { code } = await ended
  return { code, output: stdout() + stderr() }
}

async function startApache(t: Test) {
  const directory = await temporaryDirectory(t)
  const files = join(directory, 'files')
  mkdirSync(files)
  for (const path of [directory, files]) {
    chmodSync(path, 0o777) // Apache's workers are another user
  }
  const port = await freePort()
  const file = join(directory, 'config')
  writeFileSync(file, apacheConfig('', directory).replaceAll('9000', String(port)))
  const server = spawn(APACHE, ['-DFOREGROUND', '-f', file], { stdio: 'ignore' })
  t.teardown(() => server.kill())
  const url = `http://127.0.0.1:${port}`
  await eventually(() => fetch(url).catch(() => undefined), 'Apache')
  return { url, files }
}

/** A sidecar that takes HTTP Basic. `authority`: its host and port. */
async function startBasicSidecar(t: Test, upstreamUrl: string) {
  const sidecar = await startSidecar(t, { upstreamUrl, settings: { 'basic-enabled': 'true' } })
  const [login] = sidecar.logins
  if (login === undefined) {
    throw new Error('a sidecar has a login')
  }
  const authority = `127.0.0.1:${sidecar.port}`
  return {
    ...sidecar,
    user: login.accessKey,
    password: login.secret,
    authority,
    url: `http://${authority}/`,
    logins: () => sidecar.log.filter(({ event }) => event === 'login').length,
    failures: () => sidecar.log.filter(({ event }) => event === 'login_failed').length,
    refused: () => sidecar.log.filter(({ msg, status }) => msg === 'request' && status === 401),
  }
}

/** Both, in front of each other. */
async function startDav(t: Test) {
  const apache = await startApache(t)
  return { ...(await startBasicSidecar(t, apache.url)), apache: apache.url, files: apache.files }
}

t.test('curl --user uploads and downloads', { skip: without(APACHE) || without('curl') }, async (t) => {
  const { url, user, password, files, logins } = await startDav(t)
  const curl = (...args: string[]) => run(t, 'curl', ['-sS', '--fail', ...args])
  t.equal((await curl('--user', `${user}:${password}`, '-T', 'package.json', `${url}file`)).code, 0)
  t.equal(readFileSync(join(files, 'file'), 'utf8'), readFileSync('package.json', 'utf8'))
  t.match(await curl('--anyauth', '--user', `${user}:${password}`, `${url}file`), {
    code: 0,
    output: /"name"/,
  })
  t.match(await curl('--user', `${user}:wrong`, `${url}file`), { code: 22, output: /401/ })
  t.equal(logins(), 1, 'one login for all')
})

t.test(
  'rclone copies with a user and a password',
  { skip: without(APACHE) || without('rclone') },
  async (t) => {
    const { url, user, password, files, logins } = await startDav(t)
    const source = await temporaryDirectory(t)
    for (let at = 0; at < 50; at++) {
      writeFileSync(join(source, `file ${at}.txt`), `content ${at}`)
    }
    const { output: obscured } = await run(t, 'rclone', ['obscure', password])
    const remote = ['--webdav-url', url, '--webdav-user', user, '--webdav-pass', obscured.trim()]
    const rclone = (...args: string[]) => run(t, 'rclone', [...args, ...remote, '--config', '/dev/null'])
    t.match(await rclone('copy', source, ':webdav:/copied'), { code: 0 })
    t.equal(readdirSync(join(files, 'copied')).filter((name) => name.endsWith('.txt')).length, 50)
    t.match(await rclone('check', source, ':webdav:/copied'), { code: 0, output: /0 differences found/ })
    t.match(await rclone('moveto', ':webdav:/copied/file 1.txt', ':webdav:/copied/moved'), { code: 0 })
    t.match(await rclone('purge', ':webdav:/copied'), { code: 0 })
    t.equal(existsSync(join(files, 'copied')), false)
    t.equal(logins(), 1)
  },
)

t.test('cadaver logs in when it is asked', { skip: without(APACHE) || without('cadaver') }, async (t) => {
  const { url, authority, user, password, files, logins, refused } = await startDav(t)
  const home = await temporaryDirectory(t)
  const [host] = authority.split(':')
  writeFileSync(join(home, '.netrc'), `machine ${host} login ${user} password ${password}\n`, { mode: 0o600 })
  writeFileSync(join(home, 'local'), 'content')
  const commands = ['mkcol /inbox', 'put local /inbox/a', 'move /inbox/a /inbox/b', 'ls /inbox', 'quit', '']
  const { output } = await run(t, 'cadaver', [url], {
    env: { HOME: home },
    cwd: home,
    input: commands.join('\n'),
  })
  t.comment(output)
  t.equal(readFileSync(join(files, 'inbox/b'), 'utf8'), 'content')
  t.equal(logins(), 1)
  t.match(refused(), [{ reason: 'missing' }])
})

const PYTHON = 'python3'

t.test(
  "Python's webdavclient3 works with webdav_login and webdav_password",
  { skip: without(APACHE) || without(PYTHON, '-c', 'import webdav3.client') },
  async (t) => {
    const { url, user, password, files, logins } = await startDav(t)
    const program = `
import os, sys
from webdav3.client import Client
from webdav3.exceptions import WebDavException
options = {'webdav_hostname': sys.argv[1], 'webdav_login': sys.argv[2], 'webdav_password': os.environ['SECRET']}
options['disable_check'] = True  # Apache has no page at a folder, which this client asks for
client = Client(options)
client.mkdir('inbox')
client.upload_sync(remote_path='inbox/a', local_path='package.json')
client.copy('inbox/a', 'inbox/b')
client.move('inbox/b', 'inbox/c', overwrite=True)
print(sorted(client.list('inbox')), client.check('inbox/c'))
client.clean('inbox/a')
try:
    Client({**options, 'webdav_password': 'wrong'}).list('inbox')
except WebDavException as error:
    print(type(error).__name__)
`
    const result = await run(t, PYTHON, ['-c', program, url, user], { env: { SECRET: password } })
    t.match(result, { code: 0, output: /'a', 'c'.*True/ })
    t.same(
      readdirSync(join(files, 'inbox')).filter((name) => !name.startsWith('.')),
      ['c'],
    )
    t.equal(logins(), 1)
  },
)

/** Why nothing can be mounted here; false where it can. */
function withoutMounts(): string | false {
  const missing = without('mount.davfs')
  if (missing !== false || process.getuid?.() === 0) {
    return missing || (existsSync('/dev/fuse') ? false : 'there is no /dev/fuse')
  }
  return 'only root can mount'
}

t.test('davfs2 mounts, writes and reads', { skip: without(APACHE) || withoutMounts() }, async (t) => {
  const { url, user, password, files, logins } = await startDav(t)
  const directory = await temporaryDirectory(t)
  const mountPoint = join(directory, 'mounted')
  const cache = join(directory, 'cache')
  mkdirSync(mountPoint)
  mkdirSync(cache)
  for (const path of [directory, cache]) {
    chmodSync(path, 0o777) // davfs2 gives up root
  }
  const secrets = join(directory, 'secrets')
  writeFileSync(secrets, `${url} ${user} ${password}\n`, { mode: 0o600 })
  const config = join(directory, 'davfs2.conf')
  const lines = [`secrets ${secrets}`, `cache_dir ${cache}`, 'ask_auth 0', 'delay_upload 0', 'use_locks 1']
  writeFileSync(config, `${lines.join('\n')}\n`, { mode: 0o600 })
  const mounted = await run(t, 'mount.davfs', [url, mountPoint, '-o', `conf=${config}`])
  t.teardown(() => spawnSync('umount', [mountPoint]))
  if (/mounting failed|not permitted/.test(mounted.output)) {
    t.pass('this machine lets nobody mount', { skip: mounted.output.trim() })
    return
  }
  t.match(mounted, { code: 0, output: '' })
  const local = join(mountPoint, 'file')
  const written = await run(t, 'sh', [
    '-c',
    `mkdir ${mountPoint}/d && echo content > ${local} && cat ${local}`,
  ])
  t.match(written, { code: 0, output: /content/ })
  await eventually(
    () => existsSync(join(files, 'file')) && statSync(join(files, 'file')).size > 0,
    'the upload',
  )
  t.equal(readFileSync(join(files, 'file'), 'utf8'), 'content\n')
  t.ok(existsSync(join(files, 'd')))
  t.equal((await run(t, 'umount', [mountPoint])).code, 0)
  t.equal(logins(), 1)
})

t.test(
  'litmus says the same with HTTP Basic through the sidecar as without it',
  { skip: without(APACHE) || without('litmus') },
  async (t) => {
    const results = async (url: string, ...login: string[]) => {
      const cwd = await temporaryDirectory(t)
      const { output } = await run(t, 'litmus', ['-k', url, ...login], { cwd })
      // Times, and the id in the name of a request, differ.
      return output
        .split(/[\r\n]+/)
        .filter((line) => /^ *\d+\. .*\. (pass|FAIL|WARNING|SKIPPED)|^<- summary/.test(line))
    }
    const { url, apache, user, password, logins } = await startDav(t)
    const direct = await results(`${apache}/`)
    t.ok(direct.length > 60, `${direct.length} results`)
    t.same(await results(url, user, password), direct)
    t.equal(logins(), 1)
  },
)

t.test(
  'restic backs up and restores over its REST protocol',
  { skip: without('restic') || without('rclone') },
  async (t) => {
    const directory = await temporaryDirectory(t)
    for (const name of ['repository', 'source', 'restored']) {
      mkdirSync(join(directory, name))
    }
    writeFileSync(join(directory, 'source/file'), 'content')
    const port = await freePort()
    const args = ['serve', 'restic', '--addr', `127.0.0.1:${port}`, join(directory, 'repository')]
    const server = spawn('rclone', [...args, '--config', '/dev/null'], { stdio: 'ignore' })
    t.teardown(() => server.kill())
    await eventually(() => fetch(`http://127.0.0.1:${port}/`).catch(() => undefined), 'rclone')
    const { authority, user, password, logins } = await startBasicSidecar(t, `http://127.0.0.1:${port}`)
    const env = { RESTIC_PASSWORD: 'of the repository', HOME: directory }
    const restic = (login: string, ...args: string[]) =>
      run(t, 'restic', ['-r', `rest:http://${login}@${authority}/`, ...args], { env, cwd: directory })
    const login = `${user}:${password}`
    t.match(await restic(login, 'init'), { code: 0 })
    t.match(await restic(login, 'backup', 'source'), { code: 0, output: /snapshot \w+ saved/ })
    t.match(await restic(login, 'restore', 'latest', '--target', 'restored'), { code: 0 })
    t.equal(readFileSync(join(directory, 'restored/source/file'), 'utf8'), 'content')
    t.match(await restic(login, 'check'), { code: 0, output: /no errors/ })
    t.not((await restic(`${user}:wrong`, 'snapshots')).code, 0)
    t.equal(logins(), 1)
  },
)

t.test('a browser logs in once for a page, and fails once', { skip: NO_BROWSER }, async (t) => {
  const images = Array.from({ length: 12 }, (_, at) => `<img src="/image-${at}.svg">`).join('')
  const upstream = await recordingUpstream(t)
  upstream.reply((socket, { target }) => {
    const isPage = target === '/page'
    const body = isPage ? `<!doctype html>${images}` : '<svg xmlns="http://www.w3.org/2000/svg"/>'
    const type = isPage ? 'text/html' : 'image/svg+xml'
    socket.write(`HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  })
  const { url, user, password, logins, failures, refused } = await startBasicSidecar(t, upstream.url)
  const browser = await startBrowser(t)
  const open = async (secret: string) => {
    const context = await browser.newContext({ httpCredentials: { username: user, password: secret } })
    const page = await context.newPage()
    const status = await page.goto(`${url}page`, { waitUntil: 'load' }).then(
      (response) => response?.status(),
      (error) => String(error),
    )
    await context.close()
    return status
  }
  t.equal(await open(password), 200)
  t.equal(logins(), 1, 'one login for the page and its images')
  t.equal(failures(), 0)
  t.match(refused()[0], { path: '/page', reason: 'missing' }, 'it asks for the name')
  t.ok(upstream.requests.length > 12)
  t.match(String(await open('wrong')), /401|ERR_INVALID_AUTH_CREDENTIALS/)
  t.equal(failures(), 1, 'one failed login')
})
