/**
 * The manifests, and the Helm chart, which renders the same objects as kustomize: its files
 * are copies of the manifests.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse } from 'yaml'
import { CHART_FILES, VALUES_SCHEMA, withSettingsSchema } from '../../scripts/write-docs.ts'
import { VERSION } from '../../src/base/version.ts'
import { loadConfig } from '../../src/config/load.ts'
import { settingsSchema } from '../../src/config/schema.ts'
import { eventually } from '../support/eventually.ts'
import { without } from '../support/other-programs.ts'
import { serve } from '../support/program.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import type { Resource } from './render.ts'
import { copyManifests, podsOf, problemsOf, render, resourcesIn, run, write } from './render.ts'

const skip = without('kubectl')
if (skip) {
  t.pass('skipped', { skip })
  process.exit(0)
}

const root = t.testdir()
const k8s = copyManifests(root)
const read = (path: string) => readFileSync(join(k8s, path), 'utf8')

/** Runs init-sidecar.sh with the built program; returns the credential that it prints. */
function initSidecar(directory: string, app: string): string {
  const main = fileURLToPath(new URL('../../dist/main.js', import.meta.url))
  const program = `env -u NODE_OPTIONS ${process.execPath} ${main}`
  return run(join(k8s, 'init-sidecar.sh'), [directory, app], { STORAGE_AUTH_SIDECAR: program })
}

/** Writes what init-sidecar.sh would, without the time that two runs of the program take. */
function fakeSidecar(directory: string, app: string): void {
  write(directory, { 'keys/k.jwk.json': '{}', 'credentials/credentials.yaml': 'accounts: []' })
  initSidecar(directory, app)
}

/** A workload of a user, with settings of its own. */
const workload = (name: string, kind = 'Deployment', labels = {}) => ({
  apiVersion: 'apps/v1',
  kind,
  metadata: { name, labels },
  spec: {
    selector: { matchLabels: { app: name } },
    ...(kind === 'StatefulSet' && { serviceName: name }),
    template: {
      metadata: { labels: { app: name } },
      spec: {
        terminationGracePeriodSeconds: 600,
        securityContext: { fsGroup: 1234 },
        initContainers: [{ name: 'migrate', image: 'own:1' }],
        containers: [{ name: 'own', image: 'own:1' }],
        volumes: [{ name: 'own', emptyDir: {} }],
      },
    },
  },
})

/** The blocks of the guide that are files, by path. */
const guide = readFileSync(new URL('../../docs/kubernetes.md', import.meta.url), 'utf8')
const [steps = '', ports = ''] = [
  ...guide.matchAll(/^( *)```yaml\n *# my-service\/kustomization\.yaml\n([\s\S]*?)^ *```/gm),
].map(([, indent = '', text = '']) => text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''))

const credential = initSidecar(join(k8s, 'examples/one-service/sidecar'), 'storage')
fakeSidecar(join(k8s, 'examples/one-issuer/gateway'), 'storage-gateway')
write(join(k8s, 'examples/one-issuer/secrets'), {
  'postgres-url': '',
  'tls.crt': '',
  'tls.key': '',
  'ca.crt': '',
})
fakeSidecar(join(k8s, 'examples/argo-rollout/sidecar'), 'my-service')
for (const name of ['one', 'two']) {
  fakeSidecar(join(root, name, 'sidecar'), name)
  write(join(root, name), {
    'workloads.json': workload(name, name === 'one' ? 'Deployment' : 'StatefulSet'),
    'worker.json': workload(`${name}-worker`, 'Deployment', { 'storage-auth-sidecar': 'none' }),
    'kustomization.yaml': {
      resources: ['workloads.json', 'worker.json', 'sidecar'],
      components: ['../k8s/components/sidecar'],
    },
  })
}
write(root, {
  'both/kustomization.yaml': {
    namespace: 'shop',
    resources: ['../one', '../two'],
    components: ['../k8s/components/monitoring', '../k8s/components/monitoring/runbook'],
    configMapGenerator: [{ name: 'runbook', literals: ['url=https://wiki.example.com/ops'] }],
  },
  'my-service/deployment.yaml': workload('my-service'),
  'my-service/kustomization.yaml': steps.replace('../storage-auth-sidecar/', '../') + ports,
})
fakeSidecar(join(root, 'my-service/sidecar'), 'my-service')

const both = render(join(root, 'both'))
const guided = render(join(root, 'my-service'))
const rollout = render(join(k8s, 'examples/argo-rollout'))
const oneService = render(join(k8s, 'examples/one-service'))
const plain = resourcesIn(read('examples/plain.yaml'))
const all: Readonly<Record<string, readonly Resource[]>> = {
  both,
  guided,
  rollout,
  oneService,
  plain,
  oneIssuer: render(join(k8s, 'examples/one-issuer')),
  serviceAccounts: render(join(k8s, 'examples/service-accounts')),
  production: render(join(k8s, 'examples/production')),
  ...Object.fromEntries(
    readdirSync(join(k8s, 'examples'))
      .filter((name) => name.endsWith('.yaml'))
      .map((name) => [name, resourcesIn(read(`examples/${name}`))]),
  ),
}

/** Kinds of other projects, for which no schema is installed. */
const FOREIGN_KINDS = ['Rollout', 'Certificate', 'ExternalSecret']

/** The names of the Secrets that exist once the resources are applied. */
function secretNames(resources: readonly Resource[]): readonly string[] {
  return resources.flatMap(({ kind, metadata, spec }) => {
    const { secretName, target } = Object(spec)
    if (kind === 'Secret') {
      return [metadata.name]
    }
    return [secretName, target?.name].filter((name) => typeof name === 'string')
  })
}

/** Such as `Secret one-auth-keys`, of the volumes of all pods. */
function objectsInVolumes(resources: readonly Resource[]): string[] {
  return podsOf(resources).flatMap(({ spec }) =>
    (spec.volumes ?? []).flatMap(({ configMap, secret }) => {
      const names = configMap ? [`ConfigMap ${configMap.name}`] : []
      return secret ? [...names, `Secret ${secret.secretName}`] : names
    }),
  )
}

function sidecarImages(resources: readonly Resource[]): string[] {
  const containers = podsOf(resources).flatMap(({ spec }) => [
    ...(spec.initContainers ?? []),
    ...spec.containers,
  ])
  return containers.filter(({ name }) => name === 'storage-auth-sidecar').map(({ image }) => image)
}

const settingsFilesOf = (resources: readonly Resource[]) =>
  resources.filter(({ kind }) => kind === 'ConfigMap').flatMap(({ data = {} }) => data['sidecar.yaml'] ?? [])

for (const [name, resources] of Object.entries(all)) {
  t.test(`every resource of ${name} is valid and refers to existing objects`, async (t) => {
    for (const resource of resources.filter(({ kind }) => !FOREIGN_KINDS.includes(kind))) {
      t.strictSame(await problemsOf(resource), [], resource.kind)
    }
    const configMaps = resources.filter(({ kind }) => kind === 'ConfigMap')
    const existing = configMaps.map(({ metadata }) => `ConfigMap ${metadata.name}`)
    existing.push(...secretNames(resources).map((secret) => `Secret ${secret}`))
    // The operator creates these Secrets by hand.
    const hasSecrets = name !== 'plain' && !name.endsWith('.yaml')
    for (const object of objectsInVolumes(resources)) {
      if (hasSecrets || object.startsWith('ConfigMap ')) {
        t.ok(existing.includes(object), object)
      }
    }
    for (const image of sidecarImages(resources)) {
      t.equal(image.split(':')[1], VERSION)
    }
    for (const text of settingsFilesOf(resources)) {
      const file = join(t.testdir({ 'sidecar.yaml': text }), 'sidecar.yaml')
      const loaded = loadConfig({ file, env: {}, flags: {} })
      t.strictSame(loaded.ok ? [] : loaded.problems, [], text)
    }
  })
}

t.test('a resource with an unknown member is invalid', async (t) => {
  const [service] = plain.filter(({ kind }) => kind === 'Service')
  const broken = { ...service, spec: { ports: [{ port: 80, targtPort: 1 }] } } as Resource
  t.match(await problemsOf(broken), [/targtPort is unknown/])
})

t.test('two services in one kustomization and namespace have distinct names', async (t) => {
  const names = (kind: string) => both.filter((one) => one.kind === kind).map(({ metadata }) => metadata.name)
  t.match(names('ConfigMap'), [/^one-auth-\w+$/, 'storage-auth-sidecar-dashboard', /^two-auth-\w+$/])
  t.strictSame(names('Secret').sort(), [
    'one-auth-credentials',
    'one-auth-keys',
    'two-auth-credentials',
    'two-auth-keys',
  ])
  t.strictSame(names('NetworkPolicy'), ['one-auth', 'two-auth'])
  const pods = podsOf(both)
  for (const name of ['one', 'two']) {
    const found = pods.find((one) => one.name === name)
    t.equal(found?.labels['storage-auth-sidecar'], `${name}-auth`)
    const policy = both.find((one) => one.kind === 'NetworkPolicy' && one.metadata.name === `${name}-auth`)
    t.match(policy?.spec, { podSelector: { matchLabels: { 'storage-auth-sidecar': `${name}-auth` } } })
    const volumes = found?.spec.volumes?.map(
      ({ configMap, secret }) => configMap?.name ?? secret?.secretName ?? 'own',
    )
    t.match(volumes, [new RegExp(`^${name}-auth-`), `${name}-auth-keys`, `${name}-auth-credentials`, 'own'])
  }
})

t.test('the component adds one native sidecar and changes nothing else', async (t) => {
  const { template } = workload('one').spec
  const pods = podsOf(both)
  for (const { name, spec, labels } of pods) {
    const { initContainers: [first, ...others] = [], volumes, ...rest } = spec
    const { initContainers, volumes: own, ...expected } = template.spec
    const { terminationGracePeriodSeconds = 0, ...unchanged } = rest
    const { terminationGracePeriodSeconds: ownGraceSeconds, ...expectedOthers } = expected
    t.strictSame(unchanged, expectedOthers, `${name}: fsGroup and containers are the owner's`)
    if (name.endsWith('-worker')) {
      t.equal(terminationGracePeriodSeconds, ownGraceSeconds)
      t.strictSame([first], initContainers, 'the label keeps it out')
      t.strictSame(labels, { app: name })
      continue
    }
    t.match(first, { name: 'storage-auth-sidecar', restartPolicy: 'Always' })
    t.strictSame(others, initContainers)
    t.strictSame(volumes?.slice(3), own)
    const env = Object.fromEntries(first?.env?.map(({ name, value }) => [name, value]) ?? [])
    const flags = {
      '--upstream-url': 'http://127.0.0.1:9000',
      '--keys-directory': '/k',
      '--credentials-file': '/c',
    }
    const loaded = loadConfig({ env, flags })
    t.match(loaded, {
      ok: true,
      value: { config: { shutdown: { lameDuckSeconds: 5, deadlineSeconds: 580 } } },
    })
    t.ok(
      5 + 580 < terminationGracePeriodSeconds,
      'the sidecar ends, and logs what it aborted, before SIGKILL',
    )
  }
})

t.test('the examples without the component have the same container', async (t) => {
  const [component, ...copies] = [oneService, plain, rollout].map(
    (resources) => podsOf(resources)[0]?.spec.initContainers?.[0],
  )
  for (const copy of copies) {
    t.strictSame({ ...copy, image: '' }, { ...component, image: '' })
  }
})

const ADMIN_CLIENTS = [
  {
    namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'monitoring' } },
    podSelector: { matchLabels: { 'app.kubernetes.io/name': 'prometheus' } },
  },
  { podSelector: { matchExpressions: [{ key: 'storage-auth-sidecar', operator: 'Exists' }] } },
]

t.test('the admin port is open to Prometheus in its namespace and to sidecars of the same one', (t) => {
  for (const [name, resources] of Object.entries(all)) {
    for (const { kind, spec } of resources) {
      const { ingress } = Object(kind === 'NetworkPolicy' && spec)
      if (ingress?.length !== 2) {
        continue
      }
      t.strictSame(ingress[1].from, ADMIN_CLIENTS, name)
    }
  }
  t.end()
})

t.test('only the two ports of the sidecar are open, also if the guide changes them', async (t) => {
  const { listen, admin } = settingsSchema.parse({})
  for (const [resources, data, administration] of [
    [oneService, listen.port, admin.port],
    [guided, 18080, 18081],
  ] as const) {
    t.match(resources.find(({ kind }) => kind === 'NetworkPolicy')?.spec, {
      policyTypes: ['Ingress'],
      ingress: [{ ports: [{ port: data }] }, { ports: [{ port: administration }], from: ADMIN_CLIENTS }],
    })
    const [sidecar] = podsOf(resources)[0]?.spec.initContainers ?? []
    t.strictSame(
      sidecar?.ports?.map(({ containerPort }) => containerPort),
      [data, administration],
    )
    const values = sidecar?.env?.map(({ value }) => value).slice(1)
    t.strictSame(values, resources === guided ? ['18080', '18081'] : [])
  }
  t.match(podsOf(guided)[0]?.spec.initContainers?.[0]?.image, /^registry\.example\.com\//)
})

t.test('the monitoring component scrapes the admin port and completes the runbook links', async (t) => {
  const monitor = both.find(({ kind }) => kind === 'PodMonitor')
  t.match(monitor?.spec, {
    selector: { matchExpressions: [{ key: 'storage-auth-sidecar', operator: 'Exists' }] },
    podMetricsEndpoints: [{ port: 'auth-admin', path: '/metrics' }],
  })
  const { groups } = Object(both.find(({ kind }) => kind === 'PrometheusRule')?.spec)
  const [, { rules }] = groups
  for (const { alert, annotations } of rules) {
    t.equal(annotations.runbook_url, `https://wiki.example.com/ops#${alert.toLowerCase()}`)
  }
  const dashboard =
    both.find(({ metadata }) => metadata.name === 'storage-auth-sidecar-dashboard')?.data ?? {}
  const { templating } = JSON.parse(dashboard['storage-auth-sidecar.dashboard.json'] ?? '')
  t.match(templating.list, [{ name: 'runbook', query: 'https://wiki.example.com/ops' }])
  t.notMatch(JSON.stringify(both), 'runbooks.example')
})

t.test(
  'the objects of the network page are valid, and its label reaches what Prometheus selects',
  async (t) => {
    const page = readFileSync('docs/kubernetes-network.md', 'utf8')
    const [patch = '', policy = '', kustomization = '', monitor = ''] = [
      ...page.matchAll(/^```yaml\n([\s\S]*?)^```/gm),
    ].map(([, text]) => text)
    for (const resource of [policy, monitor].flatMap(resourcesIn)) {
      t.strictSame(await problemsOf(resource), [], resource.kind)
    }
    write(root, {
      'elsewhere/kustomization.yaml': `resources: [../one]\n${patch.replaceAll('my-service', 'one')}`,
    })
    const moved = render(join(root, 'elsewhere')).find(({ kind }) => kind === 'NetworkPolicy')
    const [, { from }] = Object(moved?.spec).ingress
    t.strictSame(from[0].namespaceSelector.matchLabels, { 'kubernetes.io/metadata.name': 'observability' })
    write(root, { 'monitoring/kustomization.yaml': kustomization.replace('../storage-auth-sidecar/', '../') })
    const selected = render(join(root, 'monitoring')).filter(({ metadata }) => metadata.labels?.['release'])
    t.strictSame(selected.map(({ kind }) => kind).sort(), ['PodMonitor', 'PrometheusRule'])
  },
)

t.test('the example runs: log in with the printed credential, and reach the container', async (t) => {
  const upstream = await recordingUpstream(t)
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nobject')
  const mounted = t.testdir()
  const local = (text: string) =>
    text.replaceAll('/etc/storage-auth-sidecar', mounted).replaceAll('http://127.0.0.1:9000', upstream.url)
  const mount = (directory: string, name: string, content: string | Buffer) => {
    mkdirSync(join(mounted, directory), { recursive: true })
    writeFileSync(join(mounted, directory, name), content, { mode: 0o440 })
  }
  const entriesOf = (kind: string) =>
    oneService
      .filter((resource) => resource.kind === kind)
      .flatMap(({ metadata, data = {} }) =>
        Object.entries(data).map(([name, content]) => ({ of: metadata.name, name, content })),
      )
  for (const { name, content } of entriesOf('ConfigMap')) {
    mount('config', name, local(content))
  }
  for (const { of, name, content } of entriesOf('Secret')) {
    mount(of.split('-').at(-1) ?? '', name, Buffer.from(content, 'base64'))
  }
  const container = podsOf(oneService)[0]?.spec.initContainers?.[0]
  const [, , config = ''] = container?.args ?? []
  t.ok(existsSync(local(config)), config)
  // Long enough for a busy machine to see it.
  const program = await serve(t, { config: local(config), 'shutdown-lame-duck-seconds': '4' })
  const { port } = program
  const at = `http://127.0.0.1:${port}`
  t.equal((await fetch(`${at}/a`)).status, 400)
  const login = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: credential }
  const { token } = Object(await (await fetch(`${at}/v2/auth/token`, login)).json())
  t.equal((await fetch(`${at}/a`, { headers: { Authorization: `Bearer ${token}` } })).status, 200)
  t.equal(upstream.requests[0]?.headers['x-authenticated-account-id'], 'demo')

  const [node, ...args] = container?.lifecycle?.preStop.exec.command ?? []
  t.equal(node, '/nodejs/bin/node')
  const hook = spawn(
    process.execPath,
    args.map((arg) => arg.replace('kill(1,', `kill(${program.pid},`)),
  )
  t.teardown(() => hook.kill('SIGKILL'))
  await eventually(
    async () => (await fetch(`${at}/a`)).headers.get('connection') === 'close',
    'the lame duck',
  )
  t.equal((await fetch(`http://127.0.0.1:${program.adminPort}/readyz`)).status, 503)
  t.match(await program.ended, { code: 0 })
  t.equal(hook.exitCode, null, 'the hook outlasts the sidecar, so that kubelet sends no second signal')
})

t.test('init-sidecar.sh keeps existing files', async (t) => {
  const directory = join(k8s, 'examples/one-service/sidecar')
  const before = readFileSync(join(directory, 'credentials/credentials.yaml'), 'utf8')
  t.equal(initSidecar(directory, 'storage'), '')
  t.equal(readFileSync(join(directory, 'credentials/credentials.yaml'), 'utf8'), before)
  t.match(parse(readFileSync(join(directory, 'kustomization.yaml'), 'utf8')), { namePrefix: 'storage-' })
  t.equal(
    readFileSync(join(directory, '.gitignore'), 'utf8').split('\n').slice(1, 3).join(),
    'keys/,credentials/',
  )
})

t.test('npm run docs wrote the files of the chart and the schema of its values', async (t) => {
  t.strictSame(readdirSync('k8s/chart/files').sort(), Object.keys(CHART_FILES).sort())
  for (const [name, manifest] of Object.entries(CHART_FILES)) {
    t.equal(readFileSync(join('k8s/chart/files', name), 'utf8'), readFileSync(manifest, 'utf8'), name)
  }
  const schema = readFileSync(VALUES_SCHEMA, 'utf8')
  t.equal(schema, withSettingsSchema(schema))
})

t.test('helm', { skip: without('helm') || without('kubectl') }, async (t) => {
  const root = t.testdir()
  const k8s = copyManifests(root)
  const settings = { upstreams: [{ prefix: '/', url: 'http://storage:80' }] }
  write(root, { 'values.json': { settings }, 'bad.json': { settings, containers: {} } })
  const helm = (...args: readonly string[]) => run('helm', args)
  const template = (name: string, chart: string, ...args: readonly string[]): Resource[] =>
    resourcesIn(helm('template', name, join(k8s, chart), '--kube-version', '1.34.0', ...args))
  const gateway = (...args: readonly string[]) =>
    template('storage-gateway', 'chart', '--values', join(root, 'values.json'), ...args)
  helm('dependency', 'build', join(k8s, 'examples/helm'))
  const sidecar = (...args: readonly string[]) => template('storage', 'examples/helm', ...args)
  const byName = (resources: readonly Resource[]) =>
    new Map(resources.map((one) => [`${one.kind} ${one.metadata.name}`, one]))

  await t.test('lint accepts it without a remark, and its version is that of the program', async (t) => {
    const linted = helm('lint', '--strict', join(k8s, 'chart'), '--values', join(root, 'values.json'))
    t.notMatch(linted, /INFO|WARN|ERROR/)
    t.match(helm('show', 'chart', join(k8s, 'chart')), `appVersion: ${VERSION}\n`)
  })

  await t.test('a gateway is that of kustomize', async (t) => {
    const { 'ConfigMap storage-gateway-auth': config, ...found } = Object.fromEntries(byName(gateway()))
    t.match(config?.data, { 'sidecar.yaml': /url: http:\/\/storage:80/ })
    const { credentials, revocations } = parse(config?.data?.['sidecar.yaml'] ?? '')
    t.match(
      { credentials, revocations },
      { credentials: { file: /credentials/ }, revocations: { file: /./ } },
    )
    const { template } = Object(found['Deployment storage-gateway']?.spec)
    t.match(template.metadata.annotations, { 'checksum/storage-auth-sidecar': /^[0-9a-f]{64}$/ })
    delete template.metadata.annotations
    t.strictSame(found, Object.fromEntries(byName(render(join(k8s, 'gateway')))))
  })

  await t.test('a sidecar is that of the component', async (t) => {
    write(join(root, 'app'), {
      'sidecar/kustomization.yaml': { namePrefix: 'storage-', configMapGenerator: [{ name: 'auth' }] },
      'storage.json': {
        apiVersion: 'apps/v1',
        kind: 'Deployment',
        metadata: { name: 'storage' },
        spec: {
          selector: { matchLabels: { app: 'storage' } },
          template: { metadata: { labels: { app: 'storage' } }, spec: { containers: [] } },
        },
      },
      'kustomization.yaml': {
        resources: ['storage.json', 'sidecar'],
        components: ['../k8s/components/sidecar'],
        images: [{ name: 'storage-auth-sidecar', newName: 'registry.example.com/storage-auth-sidecar' }],
        generatorOptions: { disableNameSuffixHash: true },
      },
    })
    const kustomized = byName(render(join(root, 'app')))
    const found = byName(sidecar())
    const policy = 'NetworkPolicy storage-auth'
    t.strictSame(found.get(policy), kustomized.get(policy))
    const [pod] = podsOf([...found.values()])
    const [expected] = podsOf([...kustomized.values()])
    t.strictSame(pod?.spec.initContainers, expected?.spec.initContainers)
    t.strictSame(pod?.labels, { app: 'storage', ...expected?.labels })
    t.strictSame(
      pod?.spec.volumes,
      expected?.spec.volumes?.map((volume) => ({
        ...volume,
        ...(volume.configMap && { configMap: { name: volume.configMap.name.replace(/-\w{10}$/, '') } }),
      })),
    )
  })

  await t.test('values change the objects, which stay valid', async (t) => {
    const values = (of: string, ...values: readonly string[]) =>
      values.flatMap((value) => ['--set-json', of + value])
    const changed = gateway(
      ...values(
        '',
        'ports={"data":18080}',
        'image={"digest":"sha256:0"}',
        'existingSecrets={"keys":"own","tls":"certificate"}',
        'extraVolumes=[{"name":"ca","configMap":{"name":"ca"}}]',
        'extraVolumeMounts=[{"name":"ca","mountPath":"/ca"}]',
        'extraEnv=[{"name":"NODE_EXTRA_CA_CERTS","value":"/ca/ca.crt"}]',
        'terminationGracePeriodSeconds=120',
        'networkPolicy={"prometheusNamespace":"observability"}',
        'pod={"nodeSelector":{"disk":"ssd"}}',
        'container={"resources":{"limits":{"memory":"1Gi"}}}',
        'service={"type":"LoadBalancer"}',
        'autoscaling={"maxReplicas":3}',
        'monitoring={"podMonitor":true,"rules":true,"labels":{"release":"prom"},"runbookUrl":"https://wiki.example.com/a"}',
      ),
    )
    const verifier = sidecar(...values('storage-auth-sidecar.', 'verifyOnly=true', 'ports={"admin":18081}'))
    for (const resource of [...gateway(), ...sidecar(), ...changed, ...verifier]) {
      t.strictSame(await problemsOf(resource), [], resource.kind)
    }
    const [pod] = podsOf(changed)
    t.match(pod?.spec, {
      nodeSelector: { disk: 'ssd' },
      containers: [
        {
          image: 'storage-auth-sidecar@sha256:0',
          env: [
            { name: 'SIDECAR_SHUTDOWN_DEADLINE_SECONDS', value: '100' },
            { name: 'SIDECAR_LISTEN_PORT', value: '18080' },
            { name: 'NODE_EXTRA_CA_CERTS' },
          ],
          volumeMounts: [{}, {}, {}, { mountPath: '/etc/storage-auth-sidecar/tls' }, { mountPath: '/ca' }],
          ports: [{ containerPort: 18080 }, { containerPort: 8081 }],
          resources: { requests: { cpu: '500m' }, limits: { memory: '1Gi' } },
        },
      ],
      volumes: [
        {},
        { secret: { secretName: 'own' } },
        { secret: { secretName: 'storage-gateway-auth-credentials' } },
        { secret: { secretName: 'certificate' } },
        { name: 'ca' },
      ],
      terminationGracePeriodSeconds: 120,
    })
    const all = byName(changed)
    t.match(all.get('Service storage-gateway')?.spec, {
      type: 'LoadBalancer',
      ports: [{ name: 'https', port: 443, appProtocol: 'https' }],
    })
    const [, { from }] = Object(all.get('NetworkPolicy storage-gateway')?.spec).ingress
    t.match(from[0].namespaceSelector.matchLabels, { 'kubernetes.io/metadata.name': 'observability' })
    t.match(all.get('HorizontalPodAutoscaler storage-gateway')?.spec, { minReplicas: 2, maxReplicas: 3 })
    t.match(all.get('PrometheusRule storage-auth-sidecar')?.metadata.labels, { release: 'prom' })
    t.notMatch(JSON.stringify(changed), 'runbooks.example')
    const [verifying] = podsOf(verifier)
    t.strictSame(
      verifying?.spec.volumes?.map(({ name }) => name),
      ['storage-auth-sidecar-config'],
    )
    t.match(byName(verifier).get('NetworkPolicy storage-auth')?.spec, {
      ingress: [{ ports: [{ port: 8080 }] }, { ports: [{ port: 18081 }] }],
    })
  })

  await t.test(
    'swapped ports are swapped in every object, so the admin port is not open to all',
    async (t) => {
      const swapped = byName(gateway('--set-json', 'ports={"data":8081,"admin":8080}'))
      t.match(swapped.get('NetworkPolicy storage-gateway')?.spec, {
        ingress: [{ ports: [{ port: 8081 }] }, { ports: [{ port: 8080 }], from: ADMIN_CLIENTS }],
      })
      const [pod] = podsOf([...swapped.values()])
      t.match(pod?.spec.containers[0], {
        ports: [
          { name: 'auth-data', containerPort: 8081 },
          { name: 'auth-admin', containerPort: 8080 },
        ],
        env: [
          {},
          { name: 'SIDECAR_LISTEN_PORT', value: '8081' },
          { name: 'SIDECAR_ADMIN_PORT', value: '8080' },
        ],
      })
    },
  )

  await t.test('with a database there is no Secret of credentials, and the settings are valid', async (t) => {
    const objects = byName(gateway('--set-json', 'existingSecrets={"postgres":"db","tls":"cert"}'))
    const [pod] = podsOf([...objects.values()])
    const secrets = pod?.spec.volumes?.map(({ secret }) => secret?.secretName)
    t.strictSame(secrets, [undefined, 'storage-gateway-auth-keys', 'cert', 'db'])
    const text = objects.get('ConfigMap storage-gateway-auth')?.data?.['sidecar.yaml'] ?? ''
    const file = join(t.testdir({ 'sidecar.yaml': text }), 'sidecar.yaml')
    t.match(loadConfig({ file, env: {}, flags: {} }), {
      ok: true,
      value: {
        config: {
          listen: { tls: { certFile: '/etc/storage-auth-sidecar/tls/tls.crt' } },
          credentials: { file: undefined, postgres: { urlFile: '/etc/storage-auth-sidecar/postgres/url' } },
        },
      },
    })
  })

  await t.test('values that the schema or the program would refuse are refused', async (t) => {
    t.throws(() => gateway('--values', join(root, 'bad.json')), /containers/)
    const refused = {
      'settings.liste={}': /liste/,
      // In the words of Helm before 3.18, and of later ones.
      'settings.upstreams="http://x"': /upstreams(: Invalid type. Expected: array|': got string, want array)/,
      'settings.upstreams=[{"prefix":"/"}]': /url is required|missing property 'url'/,
      'settings.listen={"port":9000}': /set ports\.data instead/,
      'settings.upstreams=[]': /settings\.upstreams is needed/,
      'ports={"data":8081}': /must differ/,
    }
    for (const [value, message] of Object.entries(refused)) {
      t.throws(() => gateway('--set-json', value), message, value)
    }
  })
})
