import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { type Container, containersOf, ours, podsOf } from './pods.ts'
import { CAN_RENDER, copyManifests, render } from './render.ts'
import { problemsOf } from './validate.ts'

const guide = readFileSync(new URL('../../docs/kubernetes.md', import.meta.url), 'utf8')

/** The blocks that begin with the name of a file, without their indentation, in order. */
const files = [...guide.matchAll(/^( *)```yaml\n *# (my-service\/\S+)\n([\s\S]*?)^ *```/gm)].map(
  ([, indent = '', path = '', text = '']): [string, string] => [
    path,
    text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  ],
)

const DEPLOYMENT = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'my-service' },
  spec: {
    selector: { matchLabels: { app: 'my-service' } },
    template: {
      metadata: { labels: { app: 'my-service' } },
      spec: { containers: [{ name: 'my-service', image: 'mine:1' }] },
    },
  },
}

t.test('the settings that the guide shows are valid', async (t) => {
  const settings = files.filter(([path]) => path.endsWith('/sidecar.yaml'))
  t.equal(settings.length, 2)
  for (const [, text] of settings) {
    const file = join(t.testdir({ 'sidecar.yaml': text }), 'sidecar.yaml')
    const loaded = loadConfig({ file, env: {}, flags: {} })
    t.strictSame(loaded.ok ? [] : loaded.problems, [])
  }
})

t.test('the grace periods that the guide adds up are those of the manifests', async (t) => {
  const rows = [...guide.matchAll(/^\| .* \|$/gm)].map(([row]) =>
    row.split('|').map((cell) => Number.parseInt(cell, 10)),
  )
  const start = guide.slice(0, guide.indexOf('| `preStop` and your')).match(/^\| .* \|$/gm)?.length ?? 0
  const [own = [], lameDuck = [], deadline = [], spare = [], sum = []] = rows.slice(start)
  for (const column of [2, 3]) {
    const parts = [own, lameDuck, deadline, spare].map((row) => row[column] || 0)
    t.equal(
      parts.reduce((all, part) => all + part),
      sum[column],
    )
  }
  const manifest = (path: string) =>
    Object(parse(readFileSync(new URL(`../../k8s/${path}`, import.meta.url), 'utf8'))).spec.template.spec
  t.equal(manifest('components/sidecar/sidecar.patch.yaml').terminationGracePeriodSeconds, sum[2])
  t.equal(manifest('base/deployment.yaml').terminationGracePeriodSeconds, sum[3])
})

if (!CAN_RENDER) {
  t.pass('skipped: kubectl is not installed', { skip: true })
} else {
  t.test('whoever follows the five minutes has a sidecar with his settings', async (t) => {
    const directory = t.testdir()
    copyManifests(join(directory, 'storage-auth-sidecar'))
    const write = (path: string, text: string) => {
      mkdirSync(dirname(join(directory, path)), { recursive: true })
      writeFileSync(join(directory, path), text)
    }
    const first = new Map([...files].reverse()) // of two with one name, the one of the five minutes
    for (const [path, text] of first) write(path, text)
    write('my-service/deployment.yaml', JSON.stringify(DEPLOYMENT))
    write('my-service/secrets/kustomization.yaml', '{ resources: [] }')
    write(
      'my-service/kustomization.yaml',
      `${first.get('my-service/kustomization.yaml')}\npatches: [{ path: patch.yaml }]\n`,
    )
    const resources = render(join(directory, 'my-service'))
    for (const resource of resources) t.strictSame(await problemsOf(resource), [], resource.kind)

    const settings = resources.find(({ kind }) => kind === 'ConfigMap')
    t.equal(Object(settings?.['data'])['sidecar.yaml'], first.get('my-service/settings/sidecar.yaml'))
    const [pods] = podsOf(resources)
    if (pods === undefined) throw new Error('there is no pod')
    const sidecar: Container = ours(pods)
    t.equal(containersOf(pods).length, 2)
    t.match(sidecar.image, /^registry\.example\.com\/storage-auth-sidecar:/)
    t.match(sidecar.resources, { requests: { cpu: '1', memory: '128Mi' }, limits: { memory: '1Gi' } })
    t.match(sidecar, { restartPolicy: 'Always' }, 'the patch has changed what it names and nothing else')
    t.equal(pods.spec.terminationGracePeriodSeconds, 600)
  })
}
