/**
 * The monitoring component as kustomize renders it: with the gateway, with the sidecar component, with settings laid
 * over it as docs/alerts.md shows.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import { temporaryDirectory } from '../support/credentials.ts'
import { monitoringFile } from './prometheus-rules.ts'

const K8S = fileURLToPath(new URL('../../k8s', import.meta.url))
const skip =
  spawnSync('kubectl', ['kustomize', '--help']).status === 0 ? false : 'kubectl is not on this machine'

/** The parts of a resource that are looked at. */
interface Resource {
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly labels?: Record<string, string>
  }
  readonly data?: Readonly<Record<string, string>>
  // biome-ignore lint/suspicious/noExplicitAny: whatever a kind has
  readonly spec?: any
}

/** Renders `top/kustomization.yaml` beside a copy of ours; files are named by their paths. */
async function render(t: Test, files: Readonly<Record<string, unknown>>): Promise<Resource[]> {
  const directory = await temporaryDirectory(t)
  cpSync(K8S, join(directory, 'k8s'), { recursive: true })
  for (const [path, content] of Object.entries(files)) {
    const file = join(directory, 'top', path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content))
  }
  const rendered = execFileSync('kubectl', ['kustomize', join(directory, 'top')], { encoding: 'utf8' })
  return parseAllDocuments(rendered).map((document) => document.toJS())
}

/** A service of somebody, without any label of ours. */
const SERVICE = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'storage' },
  spec: {
    selector: { matchLabels: { app: 'storage' } },
    template: {
      metadata: { labels: { app: 'storage' } },
      spec: {
        containers: [{ name: 'storage', image: 'storage:1', ports: [{ name: 'http', containerPort: 9000 }] }],
      },
    },
  },
}

const GATEWAY = {
  'kustomization.yaml': {
    namespace: 'shop',
    resources: ['../k8s/base'],
    components: ['../k8s/components/monitoring'],
  },
}

const kinds = (resources: readonly Resource[], kind: string) =>
  resources.filter((resource) => resource.kind === kind)

/** The ports that a PodMonitor finds in the pods of a Deployment, by the name of the container. */
function scrapedPorts(monitor: Resource, { spec }: Resource) {
  const { labels = {} } = spec.template.metadata
  const expressions: readonly { key: string; operator: string; values: string[] }[] =
    monitor.spec.selector.matchExpressions
  const isSelected = expressions.every(
    ({ key, operator, values }) => operator === 'In' && values.includes(labels[key] ?? ''),
  )
  if (!isSelected) return []
  const { containers = [], initContainers = [] } = spec.template.spec
  return [...containers, ...initContainers].flatMap(({ name, ports = [] }) =>
    ports
      .filter((port: { name?: string }) => port.name === monitor.spec.podMetricsEndpoints[0].port)
      .map(({ containerPort }: { containerPort: number }) => [name, containerPort]),
  )
}

for (const [what, files] of Object.entries({
  'the gateway': GATEWAY,
  'the sidecar component': {
    'service.yaml': SERVICE,
    'kustomization.yaml': {
      namespace: 'shop',
      resources: ['service.yaml'],
      components: ['../k8s/components/sidecar', '../k8s/components/monitoring'],
    },
  },
  'the sidecar component behind it': {
    'service.yaml': SERVICE,
    'kustomization.yaml': {
      namespace: 'shop',
      resources: ['service.yaml'],
      components: ['../k8s/components/monitoring/pod-monitor', '../k8s/components/sidecar'],
    },
  },
})) {
  t.test(`with ${what} the PodMonitor finds the admin port, once in each pod`, { skip }, async (t) => {
    const resources = await render(t, files)
    const [monitor] = kinds(resources, 'PodMonitor')
    if (monitor === undefined) throw new Error('there is a PodMonitor')
    t.equal(monitor.metadata.namespace, 'shop')
    const deployments = kinds(resources, 'Deployment')
    t.equal(deployments.length, 1)
    for (const deployment of deployments) {
      t.strictSame(scrapedPorts(monitor, deployment), [['storage-auth-sidecar', 8081]])
    }
  })
}

t.test('the dashboard and the rules arrive as they are', { skip }, async (t) => {
  const resources = await render(t, GATEWAY)
  const map = resources.find(({ metadata }) => metadata.name === 'storage-auth-sidecar-dashboard')
  t.match(map?.metadata, { labels: { grafana_dashboard: '1' } })
  const name = 'storage-auth-sidecar.dashboard.json'
  t.equal(map?.data?.[name], monitoringFile(name))
  const [rule] = kinds(resources, 'PrometheusRule')
  t.strictSame(rule?.spec, parse(monitoringFile('prometheus-rule.yaml')).spec)
})

t.test('a label for the operator and a runbook elsewhere are set as the guide shows', { skip }, async (t) => {
  const guide = readFileSync(new URL('../../docs/alerts.md', import.meta.url), 'utf8')
  const [first = '', settings = ''] = [...guide.matchAll(/```yaml\n([\s\S]*?)```/g)].map(
    ([, block = '']) => block,
  )
  const { components } = parse(first.replaceAll('../../', '../k8s/'))
  const resources = await render(t, {
    'kustomization.yaml': { resources: ['../k8s/base'], components },
    'monitoring-settings/kustomization.yaml': settings,
  })
  for (const kind of ['PodMonitor', 'PrometheusRule']) {
    const found = kinds(resources, kind)
    t.equal(found.length, 1)
    t.match(found[0]?.metadata.labels, { release: 'kube-prometheus-stack' }, kind)
  }
  t.notOk(
    kinds(resources, 'ConfigMap').find(({ metadata }) => metadata.name.startsWith('runbook')),
    'what only kustomize needs is not applied',
  )
  const groups: readonly { rules: readonly { alert?: string; annotations?: { runbook_url: string } }[] }[] =
    kinds(resources, 'PrometheusRule')[0]?.spec.groups
  const alerts = groups.flatMap(({ rules }) => rules).filter(({ alert }) => alert !== undefined)
  t.ok(alerts.length > 20)
  for (const { alert = '', annotations } of alerts) {
    t.equal(
      annotations?.runbook_url,
      `https://wiki.example.com/storage-auth-sidecar/alerts#${alert.toLowerCase()}`,
    )
  }
})
