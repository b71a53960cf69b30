import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { settingsSchema } from '../../src/config/schema.ts'
import { VERSION } from '../../src/version.ts'
import { containersOf, ours, podsOf, selects } from './pods.ts'
import { CAN_RENDER, copyManifests, type Labels, makeSecrets, type Resource, render } from './render.ts'
import { problemsOf } from './validate.ts'

/** Seconds between the end of the drain and the end of the grace period that are left for the rest of the exit. */
const MARGIN_SECONDS = 5

/** Which Secrets each overlay wants, and whose. */
const SECRETS = new Map([
  ['example', 'storage-auth-sidecar'],
  ['issuer', 'storage-auth-gateway'],
])

/** What somebody has before he adds us: two services, one of another kind, with settings of their own. */
const THEIRS = ['Deployment', 'StatefulSet'].map((kind) => ({
  apiVersion: 'apps/v1',
  kind,
  metadata: { name: `their-${kind.toLowerCase()}` },
  spec: {
    selector: { matchLabels: { app: kind } },
    ...(kind === 'StatefulSet' && { serviceName: 'theirs' }),
    template: {
      metadata: { labels: { app: kind } },
      spec: {
        securityContext: { fsGroup: 1234 },
        initContainers: [{ name: 'migrate', image: 'theirs:1' }],
        containers: [{ name: 'theirs', image: 'theirs:1' }],
        volumes: [{ name: 'theirs', emptyDir: {} }],
      },
    },
  },
}))

if (!CAN_RENDER) {
  t.pass('skipped: kubectl is not installed', { skip: true })
} else {
  const k8s = copyManifests(t.testdir())

  t.throws(() => render(join(k8s, 'overlays/example')), /secrets/, 'no secret comes with the example')
  for (const [overlay, name] of SECRETS) {
    const secrets = join(k8s, 'overlays', overlay, 'secrets')
    // What the script finds it keeps: it has no need to run the program, which takes its time.
    mkdirSync(join(secrets, 'keys'), { recursive: true })
    mkdirSync(join(secrets, 'credentials'))
    writeFileSync(join(secrets, 'keys', 'some.jwk.json'), '{}')
    writeFileSync(join(secrets, 'credentials', 'credentials.yaml'), 'accounts: []')
    makeSecrets(join(k8s, 'make-secrets.sh'), [secrets, name])
  }
  t.strictSame(
    readdirSync(join(k8s, 'overlays')).sort(),
    [...SECRETS.keys()],
    'this test knows every overlay',
  )
  let made = 0
  /** Renders a kustomization that is written for the occasion. */
  const renderThis = (kustomization: object, files: Readonly<Record<string, unknown>> = {}) => {
    const directory = join(k8s, `made-${made++}`)
    mkdirSync(directory)
    const all = { 'kustomization.yaml': kustomization, ...files }
    for (const [name, content] of Object.entries(all)) {
      writeFileSync(join(directory, name), JSON.stringify(content))
    }
    return render(directory)
  }
  const theirs = (more: object, resources: readonly object[] = THEIRS) =>
    renderThis(
      { resources: resources.map((_, index) => `${index}.json`), ...more },
      Object.fromEntries(resources.map((resource, index) => [`${index}.json`, resource])),
    )

  const rendered = new Map<string, Resource[]>()
  for (const overlay of SECRETS.keys()) rendered.set(overlay, render(join(k8s, 'overlays', overlay)))
  rendered.set('base', render(join(k8s, 'base')))
  for (const component of readdirSync(join(k8s, 'components'))) {
    rendered.set(component, theirs({ components: [`../components/${component}`] }))
  }
  const injected = rendered.get('sidecar') ?? []

  t.test('every resource is valid to the letter of its schema', async (t) => {
    let count = 0
    for (const [name, resources] of rendered) {
      t.ok(resources.length > 0, name)
      for (const resource of resources) {
        t.strictSame(await problemsOf(resource), [], `${name}: ${resource.kind} ${resource.metadata.name}`)
        count++
      }
    }
    const kinds = new Set([...rendered.values()].flat().map(({ kind }) => kind))
    t.comment(
      `k8s: ${count} resources of ${kinds.size} kinds rendered and validated, from ${rendered.size} kustomizations`,
    )
  })

  t.test('a resource that is wrong anywhere is found out', async (t) => {
    const deployment = () => structuredClone(injected.find(({ kind }) => kind === 'Deployment'))
    const places: [string, (pod: Record<string, unknown>) => void, RegExp][] = [
      [
        'unknown, in a pod',
        (pod) => Object.assign(pod, { gracePeriod: 1 }),
        /\/spec\/gracePeriod is unknown/,
      ],
      ['of the wrong type', (pod) => Object.assign(pod, { terminationGracePeriodSeconds: '60s' }), /integer/],
      ['missing', (pod) => Object.assign(pod, { containers: [{ image: 'x' }] }), /name/],
      [
        'unknown, in a probe',
        (pod) =>
          Object.assign(pod, {
            initContainers: [{ name: 'x', startupProbe: { httpGet: { port: 1, pth: '/' } } }],
          }),
        /httpGet\/pth is unknown/,
      ],
      [
        'unknown, in a security context',
        (pod) => Object.assign(pod, { containers: [{ name: 'x', securityContext: { runAsNonroot: true } }] }),
        /runAsNonroot is unknown/,
      ],
    ]
    for (const [name, spoil, expected] of places) {
      const resource = deployment()
      const [pods] = podsOf(resource === undefined ? [] : [resource])
      if (resource === undefined || pods === undefined) throw new Error('there is no Deployment')
      spoil(pods.spec as unknown as Record<string, unknown>)
      t.match((await problemsOf(resource)).join(), expected, name)
    }
    const meta = { metadata: { name: 'x' } }
    const port = { name: 'x', port: 80, targtPort: 8080 }
    for (const [resource, expected] of [
      [{ apiVersion: 'v1', kind: 'Service', ...meta, spec: { ports: [port] } }, /targtPort is unknown/],
      [{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'x', lables: {} } }, /lables is unknown/],
      [{ apiVersion: 'apps/v2', kind: 'Deployment', ...meta }, /no schema/],
      [{ apiVersion: 'v1', kind: 'Sevice', ...meta }, /no schema/],
      [
        {
          apiVersion: 'monitoring.coreos.com/v1',
          kind: 'PodMonitor',
          ...meta,
          spec: { selector: {}, podMetricsEndpoints: [{ prt: 'x' }] },
        },
        /prt is unknown/,
      ],
    ] as [Resource, RegExp][]) {
      t.match((await problemsOf(resource)).join(), expected)
    }
  })

  t.test('what is named is there', async (t) => {
    for (const overlay of SECRETS.keys()) {
      const resources = rendered.get(overlay) ?? []
      const pods = podsOf(resources)
      const has = (kind: string, name: string) =>
        resources.some((resource) => resource.kind === kind && resource.metadata.name === name)
      for (const { owner, spec } of pods) {
        for (const { configMap, secret } of spec.volumes ?? []) {
          if (configMap !== undefined) t.ok(has('ConfigMap', configMap.name), configMap.name)
          if (secret !== undefined) t.ok(has('Secret', secret.secretName), secret.secretName)
        }
        const volumes = (spec.volumes ?? []).map(({ name }) => name)
        const mounts = containersOf({ owner, spec, labels: {} }).flatMap(
          ({ volumeMounts }) => volumeMounts ?? [],
        )
        t.strictSame(
          [...new Set(mounts.map(({ name }) => name))].sort(),
          volumes.sort(),
          'each volume has its use',
        )
      }
      for (const resource of resources) {
        const { selector, ports, scaleTargetRef } = (resource['spec'] ?? {}) as {
          selector?: Labels
          ports?: { targetPort: string | number }[]
          scaleTargetRef?: { kind: string; name: string }
        }
        if (resource.kind === 'Service') {
          const behind = pods.filter(({ labels }) => selects(selector, labels))
          t.equal(behind.length, 1, resource.metadata.name)
          const open = behind.flatMap((pod) => ours(pod).ports ?? [])
          for (const { targetPort } of ports ?? []) {
            t.ok(open.some(({ name, containerPort }) => [name, containerPort].includes(targetPort)))
          }
        }
        if (scaleTargetRef !== undefined) t.ok(has(scaleTargetRef.kind, scaleTargetRef.name))
      }
    }
  })

  t.test('the settings in each ConfigMap are valid', async (t) => {
    const all = ([...rendered.values()].flat() as (Resource & { data?: Labels })[]).flatMap(
      ({ kind, data }) => (kind === 'ConfigMap' ? (data?.['sidecar.yaml'] ?? []) : []),
    )
    const different = [...new Set(all)]
    t.ok(different.length >= 4)
    for (const settings of different) {
      const file = join(t.testdir({ 'sidecar.yaml': settings }), 'sidecar.yaml')
      const loaded = loadConfig({ file, env: {}, flags: {} })
      t.strictSame(loaded.ok ? [] : loaded.problems, [], settings.slice(0, 50))
    }
  })

  t.test(
    'the grace period of each pod is long enough for its containers and then for the drain',
    async (t) => {
      for (const [name, resources] of rendered) {
        for (const pods of podsOf(resources).filter(({ labels }) => 'storage-auth-sidecar' in labels)) {
          const map = pods.spec.volumes?.find(({ configMap }) => configMap !== undefined)?.configMap?.name
          const { data } = resources.find(({ metadata }) => metadata.name === map) as Resource & {
            data: Labels
          }
          const { shutdown } = settingsSchema.parse(parse(data['sidecar.yaml'] ?? ''))
          const sleeps = pods.spec.containers.map(({ lifecycle }) => lifecycle?.preStop?.sleep?.seconds ?? 0)
          const needed =
            Math.max(...sleeps) + shutdown.lameDuckSeconds + shutdown.deadlineSeconds + MARGIN_SECONDS
          const given = pods.spec.terminationGracePeriodSeconds ?? 30
          t.ok(given >= needed, `${name}, ${pods.owner.metadata.name}: ${given} s for ${needed} s`)
          t.ok(given >= 35)

          const { readinessProbe } = ours(pods)
          const noticed = (readinessProbe?.periodSeconds ?? 10) * (readinessProbe?.failureThreshold ?? 3)
          t.ok(
            noticed <= shutdown.lameDuckSeconds,
            `not ready is noticed in ${noticed} s, within the lame duck`,
          )
        }
      }
    },
  )

  t.test(
    'our container is probed, bounded, hardened, and reads its secrets from files that it can follow',
    async (t) => {
      const { listen, admin } = settingsSchema.parse({})
      for (const [name, resources] of rendered) {
        for (const pods of podsOf(resources).filter(({ labels }) => 'storage-auth-sidecar' in labels)) {
          const container = ours(pods)
          t.strictSame(
            container.ports?.map(({ containerPort }) => containerPort),
            [listen.port, admin.port],
            name,
          )
          const adminPort = container.ports?.[1]?.name
          t.strictSame(container.startupProbe?.httpGet, { path: '/livez', port: adminPort })
          t.strictSame(container.readinessProbe?.httpGet, { path: '/readyz', port: adminPort })
          t.strictSame(container.livenessProbe?.httpGet, { path: '/livez', port: adminPort })
          t.match(container.resources, {
            requests: { cpu: String, memory: String },
            limits: { memory: String },
          })
          t.equal(container.resources?.limits?.['cpu'], undefined, 'throttling would add to every request')
          t.equal(container.image.split(':').at(-1), VERSION, 'the image of this version')
          const context = { ...pods.spec.securityContext, ...container.securityContext }
          t.match(context, { runAsNonRoot: true, runAsUser: 65532, readOnlyRootFilesystem: true })
          for (const { subPath, readOnly } of container.volumeMounts ?? []) {
            t.equal(subPath, undefined, 'what is mounted by subPath never changes')
            t.equal(readOnly, true)
          }
          const secrets = (pods.spec.volumes ?? []).flatMap(({ secret }) =>
            secret === undefined ? [] : [secret],
          )
          for (const { secretName, defaultMode } of secrets) {
            t.equal(defaultMode, 0o440, `${secretName} is not for everybody`)
            t.ok([context.runAsGroup, context.fsGroup].includes(context.fsGroup ?? 0), 'and for our group')
          }
        }
      }
    },
  )

  t.test(
    'the examples satisfy the Pod Security Standard "restricted", which their namespaces enforce',
    async (t) => {
      for (const overlay of SECRETS.keys()) {
        const resources = rendered.get(overlay) ?? []
        t.match(resources.find(({ kind }) => kind === 'Namespace')?.metadata.labels, {
          'pod-security.kubernetes.io/enforce': 'restricted',
        })
        for (const pods of podsOf(resources)) {
          t.equal(pods.spec.automountServiceAccountToken, false)
          for (const { name, securityContext } of containersOf(pods)) {
            const context = { ...pods.spec.securityContext, ...securityContext }
            t.match(
              context,
              {
                runAsNonRoot: true,
                allowPrivilegeEscalation: false,
                capabilities: { drop: ['ALL'] },
                seccompProfile: { type: 'RuntimeDefault' },
              },
              name,
            )
            t.not(context.runAsUser, 0)
            t.equal(context.capabilities?.add, undefined)
          }
        }
      }
    },
  )

  t.test(
    'one line adds a native sidecar to every Deployment and StatefulSet, and leaves theirs alone',
    async (t) => {
      const pods = podsOf(injected)
      t.equal(pods.length, 2)
      for (const each of pods) {
        t.match(ours(each), { restartPolicy: 'Always' }, 'which makes an init container a sidecar')
        const [first, ...others] = each.spec.initContainers ?? []
        t.equal(first?.name, 'storage-auth-sidecar', 'before their own init containers')
        t.strictSame(others, [{ name: 'migrate', image: 'theirs:1' }])
        t.strictSame(each.spec.containers, [{ name: 'theirs', image: 'theirs:1' }])
        t.strictSame(
          each.spec.securityContext,
          { fsGroup: 1234 },
          'the owner of files on their volumes stays',
        )
        t.ok(each.spec.volumes?.some(({ name }) => name === 'theirs'))
        t.strictSame(each.labels, { app: each.owner.kind, 'storage-auth-sidecar': 'injected' })
      }
      const selector: unknown = Object(pods[0]?.owner['spec']).selector
      t.strictSame(selector, { matchLabels: { app: 'Deployment' } }, 'a selector cannot be changed later')
    },
  )

  t.test('a Deployment with the label is passed over', async (t) => {
    const [deployment, statefulSet] = THEIRS
    const labelled = {
      ...deployment,
      metadata: { ...deployment?.metadata, labels: { 'storage-auth-sidecar': 'none' } },
    }
    const [first, second] = podsOf(
      theirs({ components: ['../components/sidecar'] }, [labelled, statefulSet ?? {}]),
    )
    t.equal(first?.spec.initContainers?.length, 1)
    t.equal(second?.spec.initContainers?.length, 2)
  })

  t.test('a patch of theirs has the last word', async (t) => {
    const patch = [{ op: 'replace', path: '/spec/template/spec/terminationGracePeriodSeconds', value: 600 }]
    const resources = theirs({
      components: ['../components/sidecar'],
      patches: [{ target: { kind: 'Deployment' }, patch: JSON.stringify(patch) }],
    })
    t.strictSame(
      podsOf(resources).map(({ spec }) => spec.terminationGracePeriodSeconds),
      [600, 60],
    )
  })

  t.test('pods with a sidecar are reached on its two ports only', async (t) => {
    const { listen, admin } = settingsSchema.parse({})
    const policies = injected.filter(({ kind }) => kind === 'NetworkPolicy')
    t.equal(policies.length, 1)
    const { podSelector, ...rules }: { podSelector: { matchLabels: Labels } } = Object(policies[0]?.['spec'])
    for (const { labels } of podsOf(injected)) t.ok(selects(podSelector.matchLabels, labels))
    t.strictSame(rules, {
      policyTypes: ['Ingress'],
      ingress: [
        { ports: [{ protocol: 'TCP', port: listen.port }] },
        { ports: [{ protocol: 'TCP', port: admin.port }], from: [{ namespaceSelector: {} }] },
      ],
    })
  })

  t.test('the gateway has what keeps it available', async (t) => {
    const base = rendered.get('base') ?? []
    const [gateway] = podsOf(base)
    for (const kind of ['PodDisruptionBudget', 'NetworkPolicy']) {
      const spec: { selector?: { matchLabels: Labels }; podSelector?: { matchLabels: Labels } } = Object(
        base.find((resource) => resource.kind === kind)?.['spec'],
      )
      const { selector, podSelector } = spec
      t.ok(selects((selector ?? podSelector)?.matchLabels, gateway?.labels ?? {}), kind)
    }
    t.equal(Object(gateway?.owner['spec']).replicas, undefined, 'the autoscaler says how many')
    t.match(
      base.find(({ kind }) => kind === 'ServiceAccount'),
      { automountServiceAccountToken: false },
    )
  })
}
