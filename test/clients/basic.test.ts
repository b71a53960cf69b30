/**
 * Clients that can send a name and a password alone, with HTTP Basic (docs/standard-clients.md):
 * against Apache's mod_dav, and rclone's server for restic; and a browser.
 */
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { APACHE, startApache } from '../support/apache.ts'
import { NO_BROWSER, startBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { runToEnd, without } from '../support/other-programs.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const PYTHON = 'python3'

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

/** A sidecar that takes HTTP Basic, in front of Apache's WebDAV. */
async function startDav(t: Test) {
  const apache = await startApache(t)
  return { ...(await startBasicSidecar(t, apache.url)), apache: apache.url, files: apache.files }
}

t.test('curl --user uploads and downloads', { skip: without(APACHE) || without('curl') }, async (t) => {
  const { url, user, password, files, logins } = await startDav(t)
  const curl = (...args: string[]) => runToEnd(t, 'curl', ['-sS', '--fail', ...args])
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
    const { output: obscured } = await runToEnd(t, 'rclone', ['obscure', password])
    const remote = ['--webdav-url', url, '--webdav-user', user, '--webdav-pass', obscured.trim()]
    const rclone = (...args: string[]) => runToEnd(t, 'rclone', [...args, ...remote, '--config', '/dev/null'])
    const copied = await rclone('copy', source, ':webdav:/copied')
    t.match(copied, { code: 0 }, copied.output)
    t.equal(readdirSync(join(files, 'copied')).filter((name) => name.endsWith('.txt')).length, 50)
    t.match(await rclone('check', source, ':webdav:/copied'), { code: 0, output: /0 differences found/ })
    t.match(await rclone('moveto', ':webdav:/copied/file 1.txt', ':webdav:/copied/moved'), { code: 0 })
    t.match(await rclone('purge', ':webdav:/copied'), { code: 0 })
    t.equal(existsSync(join(files, 'copied')), false)
    t.equal(logins(), 1)
  },
)

t.test('cadaver logs in when it is asked', { skip: without(APACHE) || without('cadaver') }, async (t) => {
  const { url, user, password, files, logins, refused } = await startDav(t)
  const home = await temporaryDirectory(t)
  const { hostname } = new URL(url)
  const netrc = `machine ${hostname} login ${user} password ${password}\n`
  writeFileSync(join(home, '.netrc'), netrc, { mode: 0o600 })
  writeFileSync(join(home, 'local'), 'content')
  const commands = ['mkcol /inbox', 'put local /inbox/a', 'move /inbox/a /inbox/b', 'ls /inbox', 'quit', '']
  const { output } = await runToEnd(t, 'cadaver', [url], {
    env: { HOME: home },
    cwd: home,
    stdin: commands.join('\n'),
  })
  t.comment(output)
  t.equal(readFileSync(join(files, 'inbox/b'), 'utf8'), 'content')
  t.equal(logins(), 1)
  t.match(refused(), [{ reason: 'missing' }])
})

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
    const result = await runToEnd(t, PYTHON, ['-c', program, url, user], { env: { SECRET: password } })
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
  if (process.getuid?.() !== 0) {
    return 'only root can mount'
  }
  if (!existsSync('/dev/fuse')) {
    return 'there is no /dev/fuse'
  }
  return without('mount.davfs')
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
  const mounted = await runToEnd(t, 'mount.davfs', [url, mountPoint, '-o', `conf=${config}`])
  t.teardown(() => spawnSync('umount', [mountPoint]))
  if (/mounting failed|not permitted/.test(mounted.output)) {
    t.pass('this machine lets nobody mount', { skip: mounted.output.trim() })
    return
  }
  t.match(mounted, { code: 0, output: '' })
  const local = join(mountPoint, 'file')
  const written = await runToEnd(t, 'sh', [
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
  t.equal((await runToEnd(t, 'umount', [mountPoint])).code, 0)
  t.equal(logins(), 1)
})

t.test(
  'litmus says the same with HTTP Basic through the sidecar as without it',
  { skip: without(APACHE) || without('litmus') },
  async (t) => {
    const results = async (url: string, ...login: string[]) => {
      const cwd = await temporaryDirectory(t)
      const { output } = await runToEnd(t, 'litmus', ['-k', url, ...login], { cwd })
      // The other lines have times and ids, which differ.
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
      runToEnd(t, 'restic', ['-r', `rest:http://${login}@${authority}/`, ...args], { env, cwd: directory })
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
