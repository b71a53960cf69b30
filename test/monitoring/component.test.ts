/**
 * The monitoring component as kustomize renders it: with the gateway, with the sidecar component, with settings laid
 * over it as docs/alerts.md shows.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { CAN_RENDER, copyManifests, type Labels, type Resource, render } from '../k8s/render.ts'
import { problemsOf } from '../k8s/validate.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { monitoringFile, type RuleFile } from './prometheus-rules.ts'

const skip = CAN_RENDER ? false : 'kubectl is not on this machine'

/** Renders `top/kustomization.yaml` beside a copy of ours; files are named by their paths. */
async function renderTop(t: Test, files: Readonly<Record<string, unknown>>): Promise<Resource[]> {
  const directory = await temporaryDirectory(t)
  copyManifests(directory)
  for (const [path, content] of Object.entries(files)) {
    const file = join(directory, 'top', path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content)) // JSON is YAML
  }
  return render(join(directory, 'top'))
}

/** The one resource of a kind, with the parts of it that are looked at. */
function only<Parts>(resources: readonly Resource[], kind: string): Resource & Parts {
  const [found, ...more] = resources.filter((resource) => resource.kind === kind)
  if (found === undefined || more.length > 0) throw new Error(`there is one ${kind}`)
  return found as Resource & Parts
}

/** What is looked at of a PodMonitor. */
interface Monitor {
  readonly spec: {
    readonly selector: {
      readonly matchExpressions: readonly { key: string; operator: string; values: string[] }[]
    }
    readonly podMetricsEndpoints: readonly {
      readonly port: string
      readonly relabelings: readonly {
        readonly sourceLabels: readonly string[]
        readonly regex: string
        readonly targetLabel: string
      }[]
    }[]
  }
}

/** What is looked at of a container. */
interface Container {
  readonly name: string
  readonly ports?: readonly { readonly name?: string; readonly containerPort: number }[]
}

/** What is looked at of a Deployment. */
interface Workload {
  readonly spec: {
    readonly template: {
      readonly metadata: { readonly labels?: Labels }
      readonly spec: {
        readonly containers: readonly Container[]
        readonly initContainers?: readonly Container[]
      }
    }
  }
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

/** The ports that a PodMonitor finds in the pods of a Deployment, behind the name of the container. */
function scrapedPorts(monitor: Monitor, { spec: { template } }: Workload) {
  const { labels = {} } = template.metadata
  const isSelected = monitor.spec.selector.matchExpressions.every(
    ({ key, operator, values }) => operator === 'In' && values.includes(labels[key] ?? ''),
  )
  if (!isSelected) return []
  const names = new Set(monitor.spec.podMetricsEndpoints.map(({ port }) => port))
  const { containers, initContainers = [] } = template.spec
  return [...containers, ...initContainers].flatMap(({ name, ports = [] }) =>
    ports.filter((port) => names.has(port.name ?? '')).map(({ containerPort }) => [name, containerPort]),
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
    const resources = await renderTop(t, files)
    const monitor = only<Monitor>(resources, 'PodMonitor')
    t.equal(monitor.metadata.namespace, 'shop')
    const deployment = only<Workload>(resources, 'Deployment')
    t.strictSame(scrapedPorts(monitor, deployment), [['storage-auth-sidecar', 8081]])
    for (const resource of resources) t.strictSame(await problemsOf(resource), [], resource.kind)
  })
}

t.test('each workload is a job of its own, labelled or not', async (t) => {
  const { spec }: Monitor = parse(monitoringFile('pod-monitor/pod-monitor.yaml'))
  const [{ relabelings } = { relabelings: [] }] = spec.podMetricsEndpoints
  /** As Prometheus does it: the values joined, the expression anchored at both ends, its group the new value. */
  const jobOf = (kind: string, controller: string, name = '') => {
    const labels = new Map([
      ['__meta_kubernetes_pod_controller_kind', kind],
      ['__meta_kubernetes_pod_controller_name', controller],
      ['__meta_kubernetes_pod_label_app_kubernetes_io_name', name],
    ])
    for (const { sourceLabels, regex, targetLabel } of relabelings) {
      const joined = sourceLabels.map((label) => labels.get(label) ?? '').join(';')
      const [, value] = new RegExp(`^(?:${regex})$`).exec(joined) ?? []
      if (value !== undefined) labels.set(targetLabel, value)
    }
    return labels.get('job')
  }
  t.equal(jobOf('ReplicaSet', 'object-storage-7d9f8b6c5d'), 'object-storage')
  t.equal(jobOf('StatefulSet', 'object-storage'), 'object-storage')
  t.equal(jobOf('ReplicaSet', 'object-storage-7d9f8b6c5d', 'files'), 'files')
  t.equal(jobOf('Job', 'import-x2x4z'), undefined, "the operator's own name of the job stays")
})

t.test('the dashboard and the rules arrive as they are', { skip }, async (t) => {
  const resources = await renderTop(t, GATEWAY)
  const map = resources.find(({ metadata }) => metadata.name === 'storage-auth-sidecar-dashboard')
  t.match(map?.metadata, { labels: { grafana_dashboard: '1' } })
  const name = 'storage-auth-sidecar.dashboard.json'
  t.strictSame(map?.['data'], { [name]: monitoringFile(name) })
  t.strictSame(only(resources, 'PrometheusRule')['spec'], parse(monitoringFile('prometheus-rule.yaml')).spec)
})

t.test('a label for the operator and a runbook elsewhere are set as the guide shows', { skip }, async (t) => {
  const guide = readFileSync(new URL('../../docs/alerts.md', import.meta.url), 'utf8')
  const [first = '', settings = ''] = [...guide.matchAll(/```yaml\n([\s\S]*?)```/g)].map(
    ([, block = '']) => block,
  )
  const { components } = parse(first.replaceAll('../../', '../k8s/'))
  const resources = await renderTop(t, {
    'kustomization.yaml': { resources: ['../k8s/base'], components },
    'monitoring-settings/kustomization.yaml': settings,
  })
  for (const kind of ['PodMonitor', 'PrometheusRule']) {
    const { metadata } = only(resources, kind)
    t.match(metadata.labels, { release: 'kube-prometheus-stack' }, kind)
  }
  t.notOk(
    resources.some(({ metadata }) => metadata.name.startsWith('runbook')),
    'what only kustomize needs is not applied',
  )
  const { groups } = only<{ spec: RuleFile }>(resources, 'PrometheusRule').spec
  const alerts = groups.flatMap(({ rules }) => rules).filter(({ alert }) => alert !== undefined)
  t.ok(alerts.length > 20)
  for (const { alert = '', annotations } of alerts) {
    t.equal(
      annotations?.['runbook_url'],
      `https://wiki.example.com/storage-auth-sidecar/alerts#${alert.toLowerCase()}`,
    )
  }
})
