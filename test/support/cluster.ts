/** The API server of Kubernetes with an etcd of its own, on local ports: no node, no controller. */
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { join } from 'node:path'
import type { Test } from 'tap'
import { makeCertificate } from './certificates.ts'
import { eventually } from './eventually.ts'
import { freePorts } from './free-port.ts'
import { watchProcess, without } from './other-programs.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** Why a test is skipped. False where both programs are. */
export const withoutCluster = () => without('etcd') || without('kube-apiserver')

const ADMIN = 'a-token-of-the-administrator'

export type Cluster = Awaited<ReturnType<typeof startCluster>>

/** Starts both, and waits until the roles are there that every cluster has. */
export async function startCluster(t: Pick<Test, 'teardown'>) {
  const directory = await temporaryDirectory(t)
  const [clientPort = 0, peerPort = 0, port = 0] = await freePorts(3)
  const ca = makeCertificate({ commonName: 'cluster', authority: true })
  const server = makeCertificate({ commonName: 'kube-apiserver', names: ['127.0.0.1'], issuer: ca })
  const signing = makeCertificate({ commonName: 'service-accounts', rsaBits: 2048 })
  const file = (name: string, content: string) => {
    writeFileSync(join(directory, name), content)
    return join(directory, name)
  }
  const signingKeyFile = file('service-accounts.key', signing.key)
  const etcdUrl = `http://127.0.0.1:${clientPort}`
  const peerUrl = `http://127.0.0.1:${peerPort}`
  const etcd = start(t, 'etcd', {
    'data-dir': join(directory, 'etcd'),
    'listen-client-urls': etcdUrl,
    'advertise-client-urls': etcdUrl,
    'listen-peer-urls': peerUrl,
    'initial-advertise-peer-urls': peerUrl,
    'initial-cluster': `default=${peerUrl}`,
  })
  const apiServer = start(t, 'kube-apiserver', {
    'etcd-servers': etcdUrl,
    'bind-address': '127.0.0.1',
    'advertise-address': '127.0.0.1',
    'endpoint-reconciler-type': 'none',
    'secure-port': String(port),
    'tls-cert-file': file('server.crt', server.cert),
    'tls-private-key-file': file('server.key', server.key),
    'token-auth-file': file('tokens.csv', `${ADMIN},admin,1,system:masters\n`),
    'authorization-mode': 'RBAC',
    'service-cluster-ip-range': '10.0.0.0/24',
    'service-account-issuer': 'https://kubernetes.default.svc.cluster.local',
    'service-account-signing-key-file': signingKeyFile,
    'service-account-key-file': signingKeyFile,
    // A controller would make the account `default` that it gives to pods.
    'disable-admission-plugins': 'ServiceAccount',
  })
  const url = `https://127.0.0.1:${port}`

  /** One request of the administrator. */
  function ask(method: string, path: string, body?: object) {
    return new Promise<{ status: number | undefined; body: Record<string, unknown> }>((resolve, reject) => {
      const headers = { authorization: `Bearer ${ADMIN}`, 'content-type': 'application/json' }
      const asked = request(url + path, { method, headers, ca: ca.cert, agent: false }, async (response) => {
        const text = Buffer.concat(await response.toArray()).toString()
        const isJson = response.headers['content-type']?.includes('json')
        resolve({ status: response.statusCode, body: isJson ? JSON.parse(text) : { text } })
      })
      asked.once('error', reject)
      asked.end(body === undefined ? undefined : JSON.stringify(body))
    })
  }

  const isReady = () =>
    ask('GET', '/readyz').then(
      ({ status }) => status === 200,
      () => false,
    )
  await Promise.race([
    eventually(
      isReady,
      () => `the API server; ${etcd.stderr().slice(-500)} ${apiServer.stderr().slice(-2000)}`,
    ),
    ...[etcd, apiServer].map(async ({ ended, stderr }) => {
      const { code } = await ended
      throw new Error(`ended with ${code}: ${stderr().slice(-2000)}`)
    }),
  ])

  async function create(path: string, body: object) {
    const created = await ask('POST', path, body)
    if (created.status !== 201) {
      throw new Error(JSON.stringify(created))
    }
    return created.body
  }

  return {
    url,
    issuer: 'https://kubernetes.default.svc.cluster.local',
    admin: ADMIN,
    caFile: file('ca.crt', ca.cert),
    createNamespace: (name: string) => create('/api/v1/namespaces', { metadata: { name } }),
    createServiceAccount: (namespace: string, name: string) =>
      create(`/api/v1/namespaces/${namespace}/serviceaccounts`, { metadata: { name } }),
    /** A token as the kubelet requests it for a projected volume. Without an audience: for the API server. */
    async tokenOf(namespace: string, name: string, audience?: string): Promise<string> {
      const audiences = audience === undefined ? [] : [audience]
      const { status } = await create(`/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`, {
        spec: { audiences, expirationSeconds: 600 },
      })
      return String(Object(status).token)
    },
  }
}

function start(t: Pick<Test, 'teardown'>, program: string, flags: Readonly<Record<string, string>>) {
  const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`)
  return watchProcess(t, spawn(program, args))
}
