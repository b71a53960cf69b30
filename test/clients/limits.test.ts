/**
 * What clients do with the 429 or 503 of an account over its limit: the table of docs/fair-use.md.
 * Each client is told to try twice at most. A test is skipped where its program is missing.
 */
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { limitsFile } from '../support/limited-setup.ts'
import { listen } from '../support/listen.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const STATUSES = ['429', '503'] as const

interface Client {
  readonly name: string
  readonly missing: string | false
  /** In a directory with `object`, and the token in `token`. */
  readonly command: (url: string, token: string) => readonly [string, ...string[]]
  /** How often it sends a request that is refused with 429, and with 503. */
  readonly attempts: readonly [number, number]
  readonly env?: Readonly<Record<string, string>>
}

const BOTO3 = `
import sys, boto3, botocore
from botocore.config import Config
url, token, mode = sys.argv[1:]
config = Config(signature_version=botocore.UNSIGNED, retries={'mode': mode, 'total_max_attempts': 2})
client = boto3.client('s3', endpoint_url=url, region_name='us-east-1', config=config)
def add_token(request, **_):
    request.headers['Authorization'] = 'Bearer ' + token
client.meta.events.register('before-send.s3', add_token)
client.put_object(Bucket='bucket', Key='object', Body=b'x')
`

const AWS_PLUGIN = `
def awscli_initialize(events):
    events.register('before-send.s3', add_token)
def add_token(request, **_):
    with open('token') as file:
        request.headers['Authorization'] = 'Bearer ' + file.read()
`

const boto3 = (mode: string, attempts: readonly [number, number]): Client => ({
  name: `boto3, ${mode}`,
  missing: without('python3', '-c', 'import boto3'),
  command: (url, token) => ['python3', '-c', BOTO3, url, token, mode],
  attempts,
})

const aws = (mode: string, attempts: readonly [number, number]): Client => ({
  name: `aws-cli, ${mode}`,
  missing: without('aws', '--version'),
  command: (url) => {
    const flags = ['--endpoint-url', url, '--no-sign-request', '--region', 'us-east-1']
    return ['aws', 's3', 'cp', 'object', 's3://bucket/object', ...flags]
  },
  env: { AWS_RETRY_MODE: mode, AWS_MAX_ATTEMPTS: '2', AWS_CONFIG_FILE: 'config', PYTHONPATH: '.' },
  attempts,
})

const TRY_TWICE = ['--low-level-retries', '2', '--retries', '1']

const CLIENTS: readonly Client[] = [
  boto3('legacy', [2, 2]),
  boto3('standard', [1, 2]),
  aws('legacy', [2, 2]),
  aws('standard', [1, 2]),
  {
    name: 'rclone, WebDAV',
    missing: without('rclone', 'version'),
    command: (url, token) => {
      const remote = ['--webdav-url', url, '--webdav-bearer-token', token]
      return ['rclone', 'copyto', 'object', ':webdav:/object', ...remote, ...TRY_TWICE]
    },
    attempts: [2, 2],
  },
]

/** A sidecar with limits. Its account has used its burst up. */
async function limitedSidecar(t: Test, limits: string, status: string) {
  const service = createServer(async (req, res) => {
    await req.toArray()
    const modified = { 'Last-Modified': new Date(0).toUTCString(), 'Content-Length': '1' }
    res.writeHead(200, req.method === 'PUT' ? {} : modified).end(req.method === 'GET' ? 'x' : '')
  })
  const port = await listen(t, service)
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${port}`,
    settings: { 'fair-use-file': await limitsFile(t, limits), 'fair-use-refused-status': status },
  })
  const url = `http://127.0.0.1:${sidecar.port}`
  await fetch(url, { headers: { Authorization: `Bearer ${sidecar.token}` } })
  const refused = () => sidecar.log.filter(({ reason }) => reason === 'fair_use').length
  return { url, token: sidecar.token, refused }
}

/** Runs a client to its end, in a directory with what it needs. */
async function run(t: Test, command: readonly string[], token: string, env = {}) {
  const [program = '', ...args] = command
  const cwd = await temporaryDirectory(t)
  writeFileSync(join(cwd, 'object'), 'x')
  writeFileSync(join(cwd, 'token'), token)
  writeFileSync(join(cwd, 'config'), '[plugins]\nstorage = storage_token\n')
  writeFileSync(join(cwd, 'storage_token.py'), AWS_PLUGIN)
  const own = {
    NODE_OPTIONS: '',
    RCLONE_CONFIG: '/dev/null',
    AWS_EC2_METADATA_DISABLED: 'true',
    AWS_CA_BUNDLE: undefined,
  }
  const child = spawn(program, args, {
    cwd,
    env: { ...process.env, ...own, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const { stdout, stderr, ended } = watchProcess(t, child)
  const { code } = await ended
  return { code, output: stdout() + stderr() }
}

for (const { name, missing, command, attempts, env } of CLIENTS) {
  t.test(`${name}: how often it sends what is refused`, { skip: missing }, async (t) => {
    for (const [at, status] of STATUSES.entries()) {
      const limits = 'default: { requestsPerSecond: 0.001, burst: 1 }'
      const { url, token, refused } = await limitedSidecar(t, limits, status)
      const { code, output } = await run(t, command(url, token), token, env)
      t.not(code, 0)
      t.match(output, new RegExp(status))
      t.equal(refused(), attempts[at], `${status}: ${output}`)
    }
  })
}

interface PatientClient {
  readonly name: string
  readonly command: (url: string) => readonly [string, ...string[]]
  readonly requests: number
}

const PATIENT_CLIENTS: readonly PatientClient[] = [
  {
    name: 'curl --retry',
    command: (url) => [
      'curl',
      '--silent',
      '--show-error',
      '--retry',
      '1',
      '--upload-file',
      'object',
      `${url}/`,
    ],
    requests: 1,
  },
  {
    name: 'rclone, S3, a download',
    command: (url) => ['rclone', 'cat', ':s3:bucket/object', '--s3-provider', 'Other', '--s3-endpoint', url],
    requests: 2, // HEAD and GET
  },
]

for (const { name, command, requests } of PATIENT_CLIENTS) {
  const skip = without(command('')[0])
  t.test(`${name} waits as long as Retry-After says`, { skip }, async (t) => {
    for (const status of STATUSES) {
      const limits = 'default: { requestsPerSecond: 0.5, burst: 1 }'
      const { url, token, refused } = await limitedSidecar(t, limits, status)
      const header = ['--header', `Authorization: Bearer ${token}`]
      const { code, output } = await run(t, [...command(url), ...header], token)
      t.equal(code, 0, output)
      t.ok(refused() <= requests, `${status}: ${refused()} refusals`)
    }
  })
}
