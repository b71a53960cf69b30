/** X-Authenticated-Assertion, from a login to the upstream that verifies it. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createRemoteJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose'
import t from 'tap'
import { activateKey, addKey } from '../../src/keys/key-changes.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { makeKey, writeKey } from '../support/keys.ts'
import { rawRequest } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const ENABLED = { 'identity-assertion-enabled': 'true' }
const NAME = 'x-authenticated-assertion'

/** A sidecar that signs assertions; `receive` sends a request and returns the assertion that the upstream got. */
async function start(t: Parameters<typeof startSetup>[0]) {
  const setup = await startSetup(t, { settings: ENABLED })
  const { upstream, sidecar } = setup
  const jwks = new URL(`http://127.0.0.1:${sidecar.adminPort}/.well-known/jwks.json`)
  return {
    ...setup,
    keys: createRemoteJWKSet(jwks, { cooldownDuration: 0 }),
    async receive(...lines: readonly string[]) {
      const response = await setup.ask(setup.head('GET /b/k', ...lines))
      t.equal(response.status, 200)
      const { rawHeaders = [] } = upstream.requests.splice(0)[0] ?? {}
      const values = rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === NAME)
      t.equal(values.length, 1)
      return String(values[0])
    },
  }
}

t.test('an upstream verifies the assertion with the keys of the admin listener', async (t) => {
  const { sidecar, keys, receive, ask } = await start(t)
  const assertion = await receive('X-Authenticated-Assertion: forged', 'X_Authenticated_Assertion: forged')
  const { payload } = await jwtVerify(assertion, keys, {
    issuer: 'storage-account-api',
    audience: 'storage-upstream',
    typ: 'upstream-assertion+jwt',
  })
  t.match(payload, { sub: 'acme', client_id: sidecar.logins[0]?.accessKey })
  t.equal(Number(payload.exp) - Number(payload.iat), 300)
  t.equal(await receive(), assertion, 'it is signed once')
  const response = await ask(`GET /b/k HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${assertion}\r\n\r\n`)
  t.equal(response.status, 400, 'it is no access token')
})

t.test('the assertion is signed by the new key after a rotation', async (t) => {
  const { sidecar, keys, receive } = await start(t)
  await receive()
  const { directory } = sidecar.key
  t.match(await addKey({ directory, now: Date.now, alg: 'ES256', kid: 'next' }), { ok: true })
  t.match(await activateKey({ directory, now: Date.now, kid: 'next' }), { ok: true })
  let assertion = ''
  const isNew = async () => {
    assertion = await receive()
    return decodeProtectedHeader(assertion).kid === 'next'
  }
  await eventually(isNew, 'an assertion by the new key', SOON_MS)
  await t.resolves(jwtVerify(assertion, keys))
})

t.test('assertions without a key that upstreams can verify are a configuration error', async (t) => {
  for (const jwk of [(await makeKey()).publicJwk, (await makeKey('HS256')).privateJwk]) {
    const directory = await temporaryDirectory(t)
    writeKey(directory, jwk)
    const settings = { ...ENABLED, 'keys-directory': directory, 'upstream-url': 'http://127.0.0.1:9' }
    await t.rejects(startSidecar(t, { settings }), {
      message: /identity\.assertion\.enabled needs a private key/,
    })
  }
})

t.test('keys that cannot sign assertions are a bad version of the directory', async (t) => {
  const { sidecar, receive } = await start(t)
  const { directory, kid } = sidecar.key
  writeFileSync(join(directory, 'active'), 'secret')
  writeKey(directory, (await makeKey('HS256', 'secret')).privateJwk)
  const isFailing = () => sidecar.metric('auth_sidecar_reload_failing{subject="keys"}')
  await eventually(async () => (await isFailing()) === 1, 'the reload')
  t.equal(decodeProtectedHeader(await receive()).kid, kid)
})

t.test('each upstream gets an assertion with its own audience', async (t) => {
  const archive = await recordingUpstream(t)
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, {
    settings: {
      ...ENABLED,
      'forward-auth-path': '/_auth',
      'forwarded-trust': '["127.0.0.1"]',
      upstreams: JSON.stringify([
        { prefix: '/', url: upstream.url },
        { prefix: '/archive', url: archive.url, assertionAudience: 'archive' },
      ]),
    },
  })
  const get = (path: string) =>
    rawRequest(
      t,
      sidecar.port,
      `GET ${path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`,
    )
  for (const path of ['/o', '/archive/o', '/o']) t.equal((await get(path)).status, 200)
  const asserted = (headers: Readonly<Record<string, string>> | undefined) => headers?.[NAME] ?? ''
  const [first, second] = upstream.requests.map(({ headers }) => asserted(headers))
  t.equal(decodeJwt(first ?? '').aud, 'storage-upstream')
  t.equal(second, first, 'signed once')
  t.equal(decodeJwt(asserted(archive.requests[0]?.headers)).aud, 'archive')
  t.equal(asserted((await get('/_auth')).headers), first)
})
