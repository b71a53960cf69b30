/**
 * The API server of Kubernetes: tokens of its service accounts as proof of followers.
 * Skipped where `etcd` or `kube-apiserver` is missing.
 */
import { readdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { makeCertificate } from '../support/certificates.ts'
import { startCluster, withoutCluster } from '../support/cluster.ts'
import { eventually } from '../support/eventually.ts'
import { askFeed } from '../support/feed-client.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const skip = withoutCluster()
if (skip !== false) {
  t.plan(0, skip)
  process.exit()
}

const AUDIENCE = 'storage-feed'
const FOLLOWER = 'system:serviceaccount:storage:follower'

const cluster = await startCluster(t)
await cluster.createNamespace('storage')
for (const name of ['hub', 'follower', 'other']) {
  await cluster.createServiceAccount('storage', name)
}

/** A directory as the kubelet makes it: a new version is a new directory, which `..data` leads to. */
async function projectedVolume(t: Test, name: string) {
  const directory = await temporaryDirectory(t)
  let versions = 0
  async function write(content: string) {
    const version = `..version-${versions++}`
    await mkdir(join(directory, version))
    writeFileSync(join(directory, version, name), content)
    symlinkSync(version, join(directory, '..data_tmp'))
    renameSync(join(directory, '..data_tmp'), join(directory, '..data'))
    if (!readdirSync(directory).includes(name)) {
      symlinkSync(join('..data', name), join(directory, name))
    }
  }
  return { file: join(directory, name), write }
}

/** The settings of docs/fleet.md for a hub, with the addresses of this test. */
async function startHub(t: Test, now: () => number = Date.now) {
  const ca = makeCertificate({ commonName: 'fleet', authority: true })
  const certificate = makeCertificate({ commonName: 'hub', names: ['127.0.0.1'], issuer: ca })
  const directory = await temporaryDirectory(t)
  const file = (name: string, content: string) => {
    writeFileSync(join(directory, name), content)
    return join(directory, name)
  }
  const trusted = {
    issuer: cluster.issuer,
    jwksUrl: `${cluster.url}/openid/v1/jwks`,
    caFile: cluster.caFile,
    bearerTokenFile: file('token', await cluster.tokenOf('storage', 'hub')),
    audience: AUDIENCE,
    accounts: {},
  }
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    now,
    settings: {
      'admin-tls-cert-file': file('tls.crt', certificate.cert),
      'admin-tls-key-file': file('tls.key', certificate.key),
      'revocations-file': file('revocations.yaml', 'revocations: []'),
      'trusted-issuers': JSON.stringify([trusted]),
      'feed-enabled': 'true',
      'feed-subjects': JSON.stringify([FOLLOWER]),
    },
  })
  const statusOf = async (token: string) => (await askFeed(sidecar.adminPort, { token, ca: ca.cert })).status
  const good = await cluster.tokenOf('storage', 'follower', AUDIENCE)
  await eventually(async () => (await statusOf(good)) === 200, 'the key set of the cluster')
  return {
    sidecar,
    caFile: file('ca.crt', ca.cert),
    statusOf,
    good,
    revoke: (...revocations: readonly object[]) => file('revocations.yaml', JSON.stringify({ revocations })),
  }
}

t.test(
  'the feed is shown to the right service account, with its audience, until its token ends',
  async (t) => {
    const clock = { aheadMs: 0 }
    const { statusOf, good, revoke } = await startHub(t, () => Date.now() + clock.aheadMs)
    t.equal(await statusOf(await cluster.tokenOf('storage', 'follower', 'another')), 401)
    t.equal(await statusOf(await cluster.tokenOf('storage', 'follower')), 401, 'a token for the API server')
    t.equal(await statusOf(await cluster.tokenOf('storage', 'other', AUDIENCE)), 401)
    t.equal(await statusOf(cluster.admin), 401)
    clock.aheadMs = 700_000
    t.equal(await statusOf(good), 401, 'expired')
    clock.aheadMs = 0
    t.equal(await statusOf(good), 200)
    revoke({ accessKey: FOLLOWER })
    await eventually(async () => (await statusOf(good)) === 401, 'the revocation')
  },
)

t.test('a follower goes on with the tokens that the kubelet renews', async (t) => {
  const hub = await startHub(t)
  const token = await projectedVolume(t, 'token')
  await token.write(hub.good)
  const admin = `https://127.0.0.1:${hub.sidecar.adminPort}`
  const follower = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    jwksUrl: `${admin}/.well-known/jwks.json`,
    settings: {
      'keys-ca-file': hub.caFile,
      'credentials-feed-url': `${admin}/feed`,
      'credentials-feed-ca-file': hub.caFile,
      'credentials-feed-token-file': token.file,
    },
  })
  const { check } = sidecarClient(follower)
  t.equal(await check(hub.sidecar.token), 'ok')
  const { jti } = JSON.parse(Buffer.from(hub.good.split('.')[1] ?? '', 'base64url').toString())
  hub.revoke({ jti })
  await eventually(async () => (await hub.statusOf(hub.good)) === 401, 'the end of the first token')
  hub.revoke({ jti }, { accessKey: hub.sidecar.logins[0]?.accessKey })
  await token.write(await cluster.tokenOf('storage', 'follower', AUDIENCE))
  await eventually(async () => (await check(hub.sidecar.token)) === 'InvalidToken', 'what changed meanwhile')
})
