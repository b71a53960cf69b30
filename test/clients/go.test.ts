/** go-jose and x/oauth2 (go/main.go); skipped unless Go's module cache has them: `go mod download` in test/clients/go. */
import { spawn } from 'node:child_process'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { listen } from '../support/listen.ts'
import { buildGo } from '../support/other-programs.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { goodClaims } from '../support/tokens.ts'

const program = join(await temporaryDirectory(t), 'client')
const built = buildGo(join(import.meta.dirname, 'go'), program, '.')
if (built.status !== 0) {
  t.plan(0, `go build: ${built.error?.message ?? built.stderr}`)
  process.exit()
}

t.test('go-jose and x/oauth2 understand the sidecar, and it understands them', async (t) => {
  const go = spawn(program, { stdio: ['pipe', 'pipe', 'inherit'] })
  t.teardown(() => go.kill('SIGKILL'))
  const lines = createInterface({ input: go.stdout })[Symbol.asyncIterator]()
  const ask = async (what: object) => {
    go.stdin.write(JSON.stringify(what))
    return JSON.parse((await lines.next()).value ?? '')
  }
  const jwks = (await lines.next()).value
  const keySet = createServer((_req, res) => res.end(jwks))
  const jwksUrl = `http://127.0.0.1:${await listen(t, keySet)}`
  const upstream = await recordingUpstream(t)
  const issuer = 'https://go.example'
  const entry = { issuer, jwksUrl, audience: 'for-storage', accounts: { runner: 'acme' } }
  const options = { 'identity-assertion-enabled': 'true', 'links-enabled': 'true' }
  const settings = { ...options, 'trusted-issuers': JSON.stringify([entry]) }
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, settings })
  const url = `http://127.0.0.1:${sidecar.port}/o`
  const sign = (aud: string): Promise<string> =>
    ask({ claims: { ...goodClaims(), iss: issuer, sub: 'runner', jti: 'j', aud } })
  const token = await sign('for-storage')
  const client = sidecarClient(sidecar)
  await eventually(async () => (await client.check(token)) === 'ok', 'the key set')
  t.equal(await ask({ url, token: sidecar.token }), 200)
  t.equal(await ask({ url, token: await sign('other') }), 400)
  t.equal(await ask({ url, token }), 200)
  const { headers } = upstream.requests.at(-1) ?? {}
  t.match(headers, { 'x-authenticated-account-id': 'acme', 'x-authenticated-access-key': 'runner' })

  const made = await client.link(token, 'GET', '/o')
  const link = new URL(made.url, url).searchParams.get('link_token')
  const published = await fetch(`http://127.0.0.1:${sidecar.adminPort}/.well-known/jwks.json`)
  const keys: unknown = await published.json()
  for (const [signed, claims] of [
    [sidecar.token, { sub: 'acme', aud: 'storage-api' }],
    [link, { sub: 'acme', parent_jti: 'j', target: '/o' }],
    [headers?.['x-authenticated-assertion'], { sub: 'acme', client_id: 'runner', jti: 'j' }],
  ] as const)
    t.match(await ask({ keys, token: signed }), claims)
})
