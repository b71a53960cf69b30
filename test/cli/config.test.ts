import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { createServer as createHttps } from 'node:https'
import { createServer as createTcp, type Server } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { Command } from 'commander'
import t, { type Test } from 'tap'
import { checkCommand, type Finding } from '../../src/cli/check.ts'
import { CommandIo } from '../../src/cli/command-io.ts'
import { addSettingFlags, configCommand, configFromFlags } from '../../src/cli/config.ts'
import { configJsonSchema } from '../../src/config/settings.ts'
import { makeCertificate } from '../support/certificates.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { makeKeyDirectory } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { prepareFiles, runProgram, serve } from '../support/program.ts'
import { runCommand } from '../support/run-command.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const upstream = { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9000' }

/** Runs `config …`. */
const run = (args: readonly string[], env: Record<string, string> = upstream) =>
  runCommand(configCommand, args, { env })

t.test('check prints one line if the configuration is valid', async (t) => {
  t.strictSame(await run(['check']), {
    failure: undefined,
    stdout: 'the configuration is valid\n',
    stderr: '',
  })
})

t.test('check --json prints the result as JSON', async (t) => {
  t.strictSame(JSON.parse((await run(['check', '--json'])).stdout), {
    ok: true,
    problems: [],
    warnings: [],
  })
  const { failure, stdout } = await run(['check', '--json'], {})
  t.equal(failure?.exitCode, 2)
  t.match(JSON.parse(stdout), { ok: false, problems: [{ path: 'upstreams', origin: 'default' }] })
})

t.test('check --files prints warnings to stderr and succeeds', async (t) => {
  const directory = await temporaryDirectory(t)
  const { cert, key } = makeCertificate({ commonName: 'sidecar', notAfter: Date.now() - 1000 })
  const certFile = join(directory, 'expired.pem')
  const keyFile = join(directory, 'key.pem')
  writeFileSync(certFile, cert)
  writeFileSync(keyFile, key, { mode: 0o644 })
  const keys = (await makeKeyDirectory(t)).directory
  const { file } = await makeCredentialsFile(t)
  const flags = ['--keys-directory', keys, '--credentials-file', file, '--listen-tls-cert-file', certFile]
  const args = ['check', '--files', ...flags, '--listen-tls-key-file', keyFile]
  const { failure, stdout, stderr } = await run(args)
  t.strictSame([failure, stdout], [undefined, 'the configuration is valid\n'])
  t.match(
    stderr,
    /^warning: .*expired\.pem: .* expired at .*\nwarning: .*key\.pem can be read by every user.*\n$/,
  )
  const printed = JSON.parse((await run([...args, '--json'])).stdout)
  t.match(printed, { ok: true, problems: [], warnings: [/expired\.pem/, /key\.pem/] })
})

t.test(
  'check --files names line and column of a bad file of limits, and accounts that do not exist',
  async (t) => {
    const file = join(await temporaryDirectory(t), 'fair-use.yaml')
    const keys = (await makeKeyDirectory(t)).directory
    const credentials = (await makeCredentialsFile(t)).file
    const files = ['--keys-directory', keys, '--credentials-file', credentials, '--fair-use-file', file]
    const check = () => run(['check', '--files', ...files])
    writeFileSync(file, 'default:\n  burst: -1\naccounts:\n  acme: { inFligth: 1 }\n')
    t.match((await check()).failure, {
      exitCode: 2,
      message:
        /fair-use\.yaml:2:10: default\.burst must be .*\n.*fair-use\.yaml:4:11: accounts\.acme .*inFligth/,
    })
    writeFileSync(file, 'accounts: { nobody: { inFlight: 1 } }')
    t.match(await check(), {
      failure: undefined,
      stdout: 'the configuration is valid\n',
      stderr: /^warning: .*limits the account nobody, which has no credentials\n$/,
    })
  },
)

t.test('check --strict fails on a warning alone', async (t) => {
  const insecure = ['check', '--keys-jwks-url', 'http://issuer.example/keys']
  t.match(await run(insecure), { failure: undefined, stderr: /^warning: keys\.jwksUrl: .* without TLS/ })
  const strict = await run([...insecure, '--strict'])
  t.match(strict.failure, { exitCode: 2, message: 'warnings, which fail with --strict: 1' })
  t.equal(strict.stdout, '')
  t.match(JSON.parse((await run([...insecure, '--strict', '--json'])).stdout), { ok: false, problems: [] })
  t.equal((await run(['check', '--strict'])).failure, undefined)
})

t.test('check --fetch says of each key set whether it can be used', async (t) => {
  const { publicJwk } = await makeKeyDirectory(t)
  const good = JSON.stringify({ keys: [publicJwk] })
  const server = createServer((req, res) => res.end(req.url === '/good' ? good : ''))
  const url = `http://127.0.0.1:${await listen(t, server)}`
  const fetched = (path: string) => run(['check', '--fetch', '--keys-jwks-url', `${url}${path}`])
  t.strictSame(await fetched('/good'), {
    failure: undefined,
    stdout: 'the configuration is valid\nkeys.jwksUrl: 1 of its keys can be used\n',
    stderr: '',
  })
  t.match((await fetched('/none')).failure, {
    exitCode: 2,
    message: /keys\.jwksUrl: the JWK Set is not a JWK Set \(--keys-jwks-url\)$/m,
  })
})

t.test('show prints the effective settings, as a table and as JSON', async (t) => {
  t.match((await run(['show', '--listen-port', '81'])).stdout, /^listen\.port +81 +flag --listen-port$/m)
  const shown = JSON.parse((await run(['show', '--json', '--upstream-url', 'http://flag'])).stdout)
  t.strictSame(shown['upstreams'], {
    value: [{ prefix: '/', url: 'http://flag' }],
    origin: 'flag --upstream-url',
  })
  t.equal((await run(['show'], {})).failure?.exitCode, 2)
})

t.test('schema prints the JSON Schema', async (t) => {
  t.equal((await run(['schema'])).stdout, configJsonSchema())
})

t.test('a mistyped flag is refused with a suggestion', async (t) => {
  const { failure, stderr } = await run(['check', '--limits-header-byte', '1'])
  t.equal(failure?.exitCode, 2)
  t.match(stderr, /Did you mean --limits-header-bytes\?/)
})

t.test('commands that forward nothing accept the same flags and need no upstream', async (t) => {
  const settings = (...args: string[]) =>
    configFromFlags(
      addSettingFlags(new Command()).parse(args, { from: 'user' }).opts(),
      { env: {} },
      { needsUpstream: false },
    )
  t.match(settings('--token-lifetime-seconds', '60').config, {
    token: { lifetimeSeconds: 60 },
    upstreams: [],
  })
})

t.test('--port is short for --listen-port', async (t) => {
  const { stdout } = await run(['show', '--port', '81', '--admin-port', '82'])
  t.match(stdout, /^listen\.port +81 +flag --port$/m)
  t.match(stdout, /^admin\.port +82 +flag --admin-port$/m)
  t.match((await run(['check', '--port', 'x'])).failure, { message: /listen\.port: must be .* \(--port\)$/m })
  const both = await run(['check', '--port', '1', '--listen-port', '2'])
  t.match(both.failure, { message: /listen\.port: cannot be used with --listen-port \(--port\)$/m })
})

const TOKEN = 'canary.token.value'
const LOGIN = ['--account', 'acme', '--access-key', 'AK', '--secret-stdin']

const urlOf = async (t: Test, server: Server) => `http://127.0.0.1:${await listen(t, server)}`
const serving = (t: Test, listener: RequestListener) => urlOf(t, createServer(listener))

/** A correct deployment, but for the requests to which `fault` responds. */
function deployment(fault: RequestListener = () => {}): RequestListener {
  return (req, res) => {
    fault(req, res)
    if (res.writableEnded) {
      return
    }
    const { url, method, headers } = req
    const isEndpoint = url === '/v2/auth/token'
    const request = `${method} ${url}`
    if (request === 'POST /v2/auth/token') {
      res.end(JSON.stringify({ token: TOKEN, expirationSec: 60 }))
    } else if (request === 'OPTIONS /v2/auth/token') {
      refuse(res, 405, 'InvalidArgument')
    } else if (headers.authorization !== `Bearer ${TOKEN}`) {
      refuse(res, 400, 'InvalidToken')
    } else {
      const body = isEndpoint ? { expirationSec: 60 } : { 'x-request-id': headers['x-request-id'] }
      res.end(JSON.stringify(body))
    }
  }
}

function refuse(res: ServerResponse, status: number, code: string): void {
  res.writeHead(status, { 'Proxy-Status': 'storage-auth-sidecar; error=http_request_denied' })
  res.end(JSON.stringify({ code, message: 'no' }))
}

/** Runs `check --json` against a listener; what is found other than ok, by name. */
async function check(args: readonly string[]) {
  const run = await runCommand(checkCommand, [...args, '--json'], { stdin: 'canary-secret' })
  const { checks }: { checks: Finding[] } = JSON.parse(run.stdout)
  const bad = checks.filter(({ status }) => status !== 'ok').map(({ check, status }) => `${status} ${check}`)
  return { ...run, checks, bad }
}

t.test('a running sidecar passes every check', async (t) => {
  const { files } = await prepareFiles(t)
  const upstream = await serving(t, (req, res) => res.end(JSON.stringify(req.headers)))
  const sidecar = await serve(t, { ...files, 'upstream-url': upstream })
  const args = ['--url', `http://127.0.0.1:${sidecar.port}`, '--upstream-url', 'http://127.0.0.1:1']
  const { bad, failure, checks } = await check(args)
  t.strictSame({ bad, failure }, { bad: [], failure: undefined })
  t.ok(checks.length >= 7)
})

t.test('the checks are login, time left, a request and the identity headers', async (t) => {
  const url = await serving(t, deployment())
  const { bad, checks, stdout, stderr } = await check(['--url', url, '--echo-path', '/echo', ...LOGIN])
  t.strictSame(bad, [])
  t.strictSame(
    checks.slice(-4).map(({ check }) => check),
    ['login', 'time left', 'token', 'identity'],
  )
  t.notMatch(stdout + stderr, /canary/)
})

const isWithToken = (req: IncomingMessage) => req.headers.authorization === `Bearer ${TOKEN}`

const cases: Record<string, { fault: RequestListener; bad: string[] }> = {
  'a sidecar that does not enforce': {
    fault(req, res) {
      if (req.url === '/echo') {
        res.end('{}')
      }
    },
    bad: ['failure enforcement', 'failure enforcement', 'failure enforcement', 'warning identity'],
  },
  'identity headers that a client can set': {
    fault(req, res) {
      if (isWithToken(req) && req.url === '/echo') {
        res.end(JSON.stringify(req.headers))
      }
    },
    bad: ['failure identity'],
  },
  'an admin listener on the data port': {
    fault(req, res) {
      if (req.url === '/metrics') {
        res.end('auth_sidecar_build_info 1')
      }
    },
    bad: ['failure admin exposure'],
  },
  'a base path that differs': {
    fault(req, res) {
      if (req.method === 'OPTIONS') {
        res.writeHead(400, { 'Proxy-Status': 'storage-auth-sidecar; error=http_request_denied' })
        res.end('{"code":"InvalidToken","message":""}')
      }
    },
    bad: ['failure endpoint'],
  },
  'a token that does not reach the service': {
    fault(req, res) {
      if (isWithToken(req) && req.url === '/echo') {
        res.writeHead(503, { 'Proxy-Status': 'storage-auth-sidecar; error=connection_refused' })
        res.end('{}')
      }
    },
    bad: ['failure token', 'warning identity'],
  },
  'a load balancer without a backend': {
    fault(req, res) {
      if (isWithToken(req) && req.url === '/echo') {
        res.writeHead(502).end('Bad Gateway')
      }
    },
    bad: ['failure token', 'warning identity'],
  },
  'a login that is refused': {
    fault(req, res) {
      if (req.method === 'POST') {
        res.writeHead(403).end('{"code":"canary"}')
      }
    },
    bad: ['failure login'],
  },
  'a token that would break out of a header': {
    fault(req, res) {
      if (req.method === 'POST') {
        res.end(JSON.stringify({ token: 'canary\r\nX: y' }))
      }
    },
    bad: ['failure login'],
  },
  'clocks that differ': {
    fault(_req, res) {
      res.setHeader('Date', new Date(0).toUTCString())
    },
    bad: ['failure clock'],
  },
}
for (const [name, { fault, bad }] of Object.entries(cases)) {
  t.test(`${name} is detected`, async (t) => {
    const url = await serving(t, deployment(fault))
    const found = await check(['--url', url, '--echo-path', '/echo', ...LOGIN])
    t.strictSame(found.bad, bad)
    t.equal(found.failure?.exitCode, 1)
    t.notMatch(found.stdout + found.stderr + found.failure?.message, /canary/)
  })
}

t.test('another kind of server is detected, and none of its output is printed', async (t) => {
  const url = await serving(t, (_req, res) =>
    res.writeHead(200, 'canary', { 'X-A': 'canary' }).end('\u001b[31mcanary'),
  )
  const run = await runCommand(checkCommand, ['--url', url])
  t.match(
    run.stdout,
    /^failure +endpoint +another server responds instead of the sidecar \(status 200\) +check the address/m,
  )
  t.notMatch(run.stdout + run.failure?.message, /canary|\u001b/)
  t.equal(run.stdout.trimEnd().split('\n').length, 2, 'the titles and one finding')
})

t.test('a secret is sent to no other server than the sidecar', async (t) => {
  const methods = new Set<string | undefined>()
  const url = await serving(t, (req, res) => {
    methods.add(req.method)
    res.writeHead(405).end()
  })
  const { bad, failure } = await check(['--url', url, ...LOGIN])
  t.strictSame(bad, ['failure endpoint'])
  t.equal(failure?.exitCode, 1)
  t.strictSame([...methods], ['OPTIONS'])
})

t.test('a service that responds without the sidecar is detected', async (t) => {
  const url = await serving(t, deployment())
  const answering = await serving(t, (_req, res) => res.end('hi'))
  const closing = createTcp((socket) => socket.destroy())
  t.strictSame((await check(['--url', url, '--upstream-url', answering])).bad, ['failure upstream'])
  t.strictSame((await check(['--url', url, '--upstream-url', await urlOf(t, closing)])).bad, [
    'warning upstream',
  ])
})

t.test('an admin listener that is not ready is detected', async (t) => {
  const url = await serving(t, deployment())
  const admin = await serving(t, (req, res) => res.writeHead(req.url === '/readyz' ? 503 : 200).end())
  t.strictSame((await check(['--url', url, '--admin-url', admin])).bad, ['failure admin'])
  const other = await serving(t, (_req, res) => res.end('hello'))
  t.strictSame((await check(['--url', url, '--admin-url', other])).bad, ['failure admin'])
  const ready = await serving(t, (_req, res) => res.end('{"status":"ready","checks":[]}'))
  t.strictSame((await check(['--url', url, '--admin-url', ready])).bad, [])
})

t.test('an untrusted certificate is detected, and no secret is sent', async (t) => {
  let requests = 0
  const { cert, key } = makeCertificate({ commonName: 'a', names: ['127.0.0.1'] })
  const server = createHttps({ cert, key }, () => {
    requests++
  })
  const url = `https://127.0.0.1:${await listen(t, server)}`
  const { bad, checks } = await check(['--url', url, '--admin-url', url, ...LOGIN])
  t.strictSame(bad, ['failure certificate', 'failure certificate'], 'once for each address')
  t.match(checks[0], {
    message: /the certificate is not accepted here \(\w*SELF_SIGNED/,
    remedy: /NODE_EXTRA_CA_CERTS/,
  })
  t.equal(requests, 0)
})

t.test('a certificate that expires within 14 days or has expired is detected', async (t) => {
  for (const [days, status, end] of [
    [13, 'warning', '12 days'],
    [16, 'ok', '15 days'],
    [-1, 'failure', 'CERT_HAS_EXPIRED'],
  ] as const) {
    const notAfter = Date.now() + days * 86_400_000
    const { cert, key } = makeCertificate({
      commonName: 'a',
      names: ['127.0.0.1'],
      authority: true,
      notAfter,
    })
    const url = `https://127.0.0.1:${await listen(t, createHttps({ cert, key }, deployment()))}`
    const NODE_EXTRA_CA_CERTS = join(t.testdir({ 'ca.pem': cert }), 'ca.pem')
    const { stdout, code } = await runProgram(t, ['check', '--url', url], { env: { NODE_EXTRA_CA_CERTS } })
    t.equal(code, days > 0 ? 0 : 1)
    t.match(stdout, new RegExp(`^${status} +certificate +the certificate .*${end}`, 'm'))
  }
})

t.test('servers that hang, drip or never end do not keep it waiting', async (t) => {
  t.plan(6)
  const silent = createTcp(() => {})
  const endless = createServer((_req, res) => {
    const more = () => {
      while (!res.destroyed && res.write('x'.repeat(65_536))) {}
    }
    res.on('drain', more).on('error', () => {})
    more()
  })
  const dripping = createTcp((socket) => {
    socket.on('error', () => {})
    const timer = setInterval(() => socket.write('H'), 50)
    socket.on('close', () => clearInterval(timer))
  })
  const servers = await Promise.all([silent, endless, dripping].map((server) => urlOf(t, server)))
  const runs = servers.map((url) => check(['--url', url, '--admin-url', url, '--upstream-url', url]))
  for (const { failure, checks } of await Promise.all(runs)) {
    t.equal(failure?.exitCode, 1)
    t.match(checks[0], { status: 'failure', remedy: /\w/ })
  }
})

t.test('a missing secret and conflicting options are wrong usage', async (t) => {
  const keepAlive = setInterval(() => {}, 1000) // as the stdin of a process does
  const stdin = new PassThrough()
  const stdout = new PassThrough()
  const stderr = new PassThrough()
  const late = checkCommand(new CommandIo({ stdin, stdout, stderr, env: {} }))
  await t.rejects(late.parseAsync(['--url', 'http://127.0.0.1:1', ...LOGIN], { from: 'user' }), {
    message: 'no secret has arrived on stdin',
  })
  clearInterval(keepAlive)
  for (const args of [
    [],
    ['--url', 'ftp://a'],
    ['--url', 'http://user:canary@a'],
    ['--url', 'http://a', '--echo-path', 'x'],
    ['--url', 'http://127.0.0.1:1', '--account', 'acme'],
  ]) {
    t.equal((await runCommand(checkCommand, args)).failure?.exitCode, 2, args.join(' '))
  }
})
