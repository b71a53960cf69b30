/**
 * An S3 server (moto) that chooses its buckets by `Host` or by path. It ignores conditions of sub-resources.
 */
import { spawn } from 'node:child_process'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { watchProcess, without } from '../support/other-programs.ts'
import { rawRequest } from '../support/raw-client.ts'
import { startSidecar } from '../support/sidecar.ts'

const MOTO = 'moto_server'
const skip = without(MOTO)

/** moto takes the first label of other hosts for a bucket. */
const BY_PATH = 'localhost'
const FIRST = 'first.localhost'
const SECOND = 'second.localhost'

/** Each request to moto without this header is anonymous. */
const AS_OWNER =
  'Authorization: AWS4-HMAC-SHA256 Credential=k/20250101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x'
const PUBLIC = 'X-Amz-Acl: public-read'

interface S3Request {
  readonly line: string
  readonly host: string
  readonly headers?: readonly string[]
  readonly body?: string
}

async function ask(t: Test, port: number, { line, host, headers = [], body = '' }: S3Request) {
  const head = [`${line} HTTP/1.1`, `Host: ${host}`, `Content-Length: ${body.length}`, ...headers]
  const response = await rawRequest(t, port, `${head.join('\r\n')}\r\n\r\n${body}`)
  return { status: response.status, headers: response.headers, text: response.body.toString() }
}

/** Two buckets, `first` and `second`. In each, the content of the object `public/a` is the bucket's name. */
async function startS3(t: Test, hosts: string) {
  const port = await freePort()
  const env = { ...process.env, NODE_OPTIONS: '' }
  const child = spawn(MOTO, ['-H', '127.0.0.1', '-p', String(port)], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const { stderr } = watchProcess(t, child)
  await eventually(
    () => fetch(`http://127.0.0.1:${port}/moto-api/data.json`).catch(() => undefined),
    () => `moto to answer: ${stderr()}`,
  )
  for (const bucket of ['first', 'second']) {
    await ask(t, port, { line: `PUT /${bucket}`, host: BY_PATH, headers: [AS_OWNER] })
    const object = { line: `PUT /${bucket}/public/a`, host: BY_PATH, headers: [AS_OWNER, PUBLIC] }
    t.equal((await ask(t, port, { ...object, body: bucket })).status, 200, bucket)
  }
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${port}`,
    settings: { 'scopes-hosts': hosts, 'links-enabled': 'true' },
  })
  const ownState = async (line: string) => {
    const { text } = await ask(t, port, { line, host: BY_PATH, headers: [AS_OWNER] })
    return text.replace(/<RequestId>.*<\/RequestId>/, '')
  }
  return {
    sidecar,
    ownState,
    askSidecar: (request: S3Request, token?: string) => {
      const headers = [...(request.headers ?? [])]
      if (token !== undefined) {
        headers.push(`Authorization: Bearer ${token}`)
      }
      return ask(t, sidecar.port, { ...request, headers })
    },
  }
}

t.test('a path of one bucket does not reach another bucket by Host', { skip }, async (t) => {
  const { sidecar, askSidecar } = await startS3(t, FIRST)
  const narrow = await sidecar.mint({ claims: { scope: 'storage.read:/public' } })
  const line = 'GET /public/a'
  t.match(await askSidecar({ line, host: FIRST }, narrow), { status: 200, text: 'first' })
  t.match(await askSidecar({ line, host: SECOND }, sidecar.token), { status: 200, text: 'second' }, 'by Host')
  const refused = { status: 403, headers: { 'proxy-status': /details="host"/ } }
  t.match(await askSidecar({ line, host: SECOND }, narrow), refused)
  t.match(await askSidecar({ line: `GET http://${SECOND}/public/a`, host: SECOND }, narrow), refused)
  t.match(await askSidecar({ line: 'GET /second/public/a', host: BY_PATH }, narrow), refused)
})

t.test('a link of one bucket does not reach another bucket by Host', { skip }, async (t) => {
  const { sidecar, askSidecar } = await startS3(t, `${FIRST},${SECOND}`)
  const body = JSON.stringify({ method: 'GET', target: '/public/a' })
  const headers = ['Content-Type: application/json']
  const made = await askSidecar({ line: 'POST /v2/auth/links', host: FIRST, headers, body }, sidecar.token)
  const { url }: { url: string } = JSON.parse(made.text)
  t.match(await askSidecar({ line: `GET ${url}`, host: FIRST }), { status: 200, text: 'first' })
  const refused = await askSidecar({ line: `GET ${url}`, host: SECOND })
  t.match(refused, { status: 400, headers: { 'proxy-status': /details="claims"/ } })
})

const POLICY = '{"Version":"2012-10-17","Statement":[]}'
const TAGS = '<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>'
const RULE =
  '<Rule><ID>all</ID><Filter/><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>'

/** Changes of what exists, and the line that shows their effect. */
const CHANGES = [
  { line: 'PUT /first?policy', body: POLICY, shows: 'GET /first?policy' },
  { line: 'PUT /first?acl', headers: ['X-Amz-Acl: public-read-write'], shows: 'GET /first?acl' },
  { line: 'PUT /first', headers: ['X-Amz-Acl: authenticated-read'], shows: 'GET /first?acl' },
  { line: 'PUT /first?tagging', body: TAGS, shows: 'GET /first?tagging' },
  {
    line: 'PUT /first?lifecycle',
    body: `<LifecycleConfiguration>${RULE}</LifecycleConfiguration>`,
    shows: 'GET /first?lifecycle',
  },
  { line: 'PUT /first/public/a?tagging', body: TAGS, shows: 'GET /first/public/a?tagging' },
]

t.test('a caller who may only create changes nothing that exists', { skip }, async (t) => {
  const { sidecar, ownState, askSidecar } = await startS3(t, BY_PATH)
  const creator = await sidecar.mint({ claims: { scope: 'storage.create:/first' } })
  for (const { line, headers = [], body = '', shows } of CHANGES) {
    const change = { line, host: BY_PATH, headers: ['If-None-Match: *', ...headers], body }
    const before = await ownState(shows)
    const refused = { status: 403, headers: { 'proxy-status': /details="scope"/ } }
    t.match(await askSidecar(change, creator), refused, line)
    t.equal(await ownState(shows), before, `${line} has changed nothing`)
    t.ok((await askSidecar(change, sidecar.token)).status < 300, `${line} despite its condition`)
    t.not(await ownState(shows), before, `${line} of an unrestricted caller has an effect`)
  }
  const fresh = { line: 'PUT /first/new', host: BY_PATH, headers: ['If-None-Match: *'], body: 'x' }
  t.equal((await askSidecar(fresh, creator)).status, 200)
  t.not((await askSidecar(fresh, creator)).status, 200, 'it exists')
})
