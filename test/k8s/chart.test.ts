/** The Helm chart renders the same objects as kustomize: its files are links to the manifests. */
import { lstatSync, readdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { VERSION } from '../../src/version.ts'
import { without } from '../support/other-programs.ts'
import {
  copyManifests,
  podsOf,
  problemsOf,
  type Resource,
  render,
  resourcesIn,
  run,
  write,
} from './render.ts'

t.test('files of the chart are links to manifests that kustomize renders', async (t) => {
  const manifests = realpathSync('k8s')
  for (const name of readdirSync('k8s/chart/files')) {
    const path = join('k8s/chart/files', name)
    t.ok(lstatSync(path).isSymbolicLink(), path)
    t.match(realpathSync(path).slice(manifests.length), /^\/(?:components|gateway)\//)
  }
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

  await t.test('lint accepts it, and its version is that of the program', async (t) => {
    helm('lint', '--strict', join(k8s, 'chart'), '--values', join(root, 'values.json'))
    t.match(helm('show', 'chart', join(k8s, 'chart')), `appVersion: ${VERSION}\n`)
  })

  await t.test('a gateway is that of kustomize', async (t) => {
    const { 'ConfigMap storage-gateway-auth': config, ...found } = Object.fromEntries(byName(gateway()))
    t.match(config?.data, { 'sidecar.yaml': /url: http:\/\/storage:80/ })
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
    const [pod, expected] = [found, kustomized].map((all) => podsOf([...all.values()])[0])
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
        'keysSecret="own"',
        'pod={"nodeSelector":{"disk":"ssd"}}',
        'container={"resources":{"limits":{"memory":"1Gi"}}}',
        'service={"type":"LoadBalancer"}',
        'autoscaling={"maxReplicas":3}',
        'monitoring={"podMonitor":true,"rules":true,"labels":{"release":"prom"},"runbookUrl":"https://wiki.example.com/a"}',
      ),
    )
    const verifier = sidecar(...values('storage-auth-sidecar.', 'verifyOnly=true', 'ports={"admin":18081}'))
    for (const resource of [...gateway(), ...sidecar(), ...changed, ...verifier])
      t.strictSame(await problemsOf(resource), [], resource.kind)
    const [pod] = podsOf(changed)
    t.match(pod?.spec, {
      nodeSelector: { disk: 'ssd' },
      containers: [
        {
          image: 'storage-auth-sidecar@sha256:0',
          env: [{ name: 'SIDECAR_LISTEN_PORT', value: '18080' }],
          ports: [{ containerPort: 18080 }, { containerPort: 8081 }],
          resources: { requests: { cpu: '500m' }, limits: { memory: '1Gi' } },
        },
      ],
      volumes: [
        {},
        { secret: { secretName: 'own' } },
        { secret: { secretName: 'storage-gateway-auth-credentials' } },
      ],
    })
    const all = byName(changed)
    t.match(all.get('Service storage-gateway')?.spec, { type: 'LoadBalancer' })
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

  await t.test('a value that the schema does not have is refused', async (t) => {
    t.throws(() => gateway('--values', join(root, 'bad.json')), /containers/)
  })
})
