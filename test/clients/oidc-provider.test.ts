/**
 * Access tokens of npm's `oidc-provider`; skipped unless OIDC_PROVIDER is the directory of an installed one.
 */
import { createServer } from 'node:http'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { makeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'

const directory = process.env['OIDC_PROVIDER']
if (directory === undefined) {
  t.plan(0, 'OIDC_PROVIDER is not set: npm install oidc-provider in a directory, and name it')
  process.exit()
}

t.test('an access token for the resource is accepted, one for another is not', async (t) => {
  const server = createServer()
  const issuer = `http://127.0.0.1:${await listen(t, server)}`
  const module = pathToFileURL(join(directory, 'node_modules/oidc-provider/lib/index.js')).href
  const { default: Provider } = await import(module)
  const key = await makeKey('RS256', 'idp')
  const resource = { scope: 'files', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } }
  const registered = { client_id: 'backup', client_secret: 's', grant_types: ['client_credentials'] }
  const provider = new Provider(issuer, {
    jwks: { keys: [key.privateJwk] },
    clients: [{ ...registered, redirect_uris: [], response_types: [] }],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_ctx: unknown, audience: string) => ({ audience, ...resource }),
      },
    },
  })
  server.on('request', provider.callback())
  const tokenFor = async (resource: string) => {
    const body = new URLSearchParams({ grant_type: 'client_credentials', scope: 'files', resource })
    const headers = { authorization: `Basic ${Buffer.from('backup:s').toString('base64')}` }
    const response = await fetch(`${issuer}/token`, { method: 'POST', headers, body })
    const granted: unknown = await response.json()
    return granted instanceof Object && 'access_token' in granted ? String(granted.access_token) : ''
  }
  const upstream = await recordingUpstream(t)
  const entry = {
    issuer,
    jwksUrl: `${issuer}/jwks`,
    audience: 'https://storage.example',
    accessKeyClaim: 'client_id',
    accounts: { backup: 'acme' },
  }
  const settings = { 'trusted-issuers': JSON.stringify([entry]) }
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, settings })
  const client = sidecarClient(sidecar)
  const token = await tokenFor('https://storage.example')
  await eventually(async () => (await client.check(token)) === 'ok', 'the key set')
  t.equal(await client.forward(token), 200)
  t.match(upstream.requests.at(-1)?.headers, {
    'x-authenticated-account-id': 'acme',
    'x-authenticated-access-key': 'backup',
    'x-authenticated-token-id': /^[\w-]{20,}$/,
  })
  t.equal(await client.check(await tokenFor('https://other.example')), 'InvalidToken')
})
