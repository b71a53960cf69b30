import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { addKey } from '../../src/keys/key-changes.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { podsOf } from './pods.ts'
import { CAN_RENDER, copyManifests, type Login, makeSecrets, render } from './render.ts'
import { runPod } from './run-pod.ts'

const OBJECT = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nobject'

if (!CAN_RENDER) {
  t.pass('skipped: kubectl is not installed', { skip: true })
} else {
  const k8s = copyManifests(t.testdir())

  t.test('the example: log in with the credential that was printed, and reach the container', async (t) => {
    const overlay = join(k8s, 'overlays/example')
    const login = makeSecrets(join(k8s, 'make-secrets.sh'), [join(overlay, 'secrets')])
    const resources = render(overlay)
    const [pods] = podsOf(resources)
    if (pods === undefined) throw new Error('there is no pod')
    const upstream = await recordingUpstream(t)
    upstream.reply(OBJECT)
    const sidecar = await runPod(t, resources, pods, { 'http://127.0.0.1:9000': upstream.url })
    const token = await logIn(sidecar.port, login)
    t.equal((await fetch(`http://127.0.0.1:${sidecar.port}/a`)).status, 400, 'not without a token')
    t.equal((await withToken(sidecar.port, token)).status, 200)
    t.equal(upstream.requests[0]?.headers['x-authenticated-account-id'], 'demo')
    t.strictSame(
      sidecar.log().filter(({ level, msg }) => Number(level) >= 40 && !/^Node /.test(String(msg))),
      [],
      'no warning, for one of files that everybody can read',
    )

    // Containers stop before their sidecar does.
    await upstream.close()
    const gone = await withToken(sidecar.port, token)
    t.equal(gone.status, 503, 'an answer, and no hang')
    t.match(gone.headers.get('proxy-status'), /error=connection_refused/)
    sidecar.child.kill('SIGINT') // as SIGTERM, but for the lame duck
    t.strictSame(await sidecar.ended, { code: 0, signal: null })
  })

  t.test('an issuer and a sidecar that only verifies: one login, checked in both', async (t) => {
    const overlay = join(k8s, 'overlays/issuer')
    const login = makeSecrets(join(k8s, 'make-secrets.sh'), [
      join(overlay, 'secrets'),
      'storage-auth-gateway',
    ])
    const resources = render(overlay)
    const pods = (name: string) => {
      const found = podsOf(resources).find(({ owner }) => owner.metadata.name === name)
      if (found === undefined) throw new Error(`there is no ${name}`)
      return found
    }
    const upstream = await recordingUpstream(t)
    upstream.reply(OBJECT)
    // In the place of the services: their settings name the gateway, which must be there first.
    const front = await recordingUpstream(t)
    const gateway = await runPod(t, resources, pods('storage-auth-gateway'), {
      'http://objects:80': front.url,
      'http://archive:80': front.url,
    })
    const objects = await runPod(t, resources, pods('objects'), {
      'http://127.0.0.1:9000': upstream.url,
      'http://storage-auth-gateway-admin:8081': `http://127.0.0.1:${gateway.adminPort}`,
    })
    const token = await logIn(gateway.port, login)
    t.equal((await withToken(objects.port, token)).status, 200, 'verified with the key of the issuer')
    t.equal(upstream.requests[0]?.headers['x-authenticated-account-id'], 'demo')

    front.reply(OBJECT)
    t.equal((await withToken(gateway.port, token)).status, 200)
    t.equal(
      front.requests[0]?.headers['authorization'],
      `Bearer ${token}`,
      'for the sidecar behind it to verify',
    )
    const refused = await fetch(`http://127.0.0.1:${objects.port}/v2/auth/token`, logInWith(login))
    t.equal(refused.status, 503, 'the issuer alone issues')
  })

  t.test('secrets are kept when the script is run again, and a second key is among them', async (t) => {
    const script = join(k8s, 'make-secrets.sh')
    const directory = join(k8s, 'overlays/example/secrets')
    const credentialsFile = join(directory, 'credentials/credentials.yaml')
    const before = readFileSync(credentialsFile, 'utf8')
    const second = {
      directory: join(directory, 'keys'),
      alg: 'ES256',
      kid: 'second',
      activate: false,
    } as const
    t.match(await addKey({ ...second, now: Date.now }), { ok: true })
    t.equal(makeSecrets(script, [directory, 'some']), undefined, 'nothing new to tell')
    t.equal(readFileSync(credentialsFile, 'utf8'), before)
    const [credentials, keys] = render(directory)
    t.equal(credentials?.metadata.name, 'some-credentials', 'a name that stays')
    t.strictSame(Object.keys(Object(credentials?.['data'])), ['credentials.yaml', 'revocations.yaml'])
    t.match(Object.keys(Object(keys?.['data'])), ['active', /^es256/, 'second.jwk.json'])
  })
}

function logInWith(login: Login | undefined): RequestInit {
  return { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(login) }
}

async function logIn(port: number, login: Login | undefined): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}/v2/auth/token`, logInWith(login))
  const { token }: { token?: unknown } = Object(await response.json())
  return String(token)
}

function withToken(port: number, token: string): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}/a`, { headers: { Authorization: `Bearer ${token}` } })
}
