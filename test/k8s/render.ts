/** Renders copies of the deployment files with the kustomize of kubectl, and validates the resources. */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseAllDocuments } from 'yaml'

export type Labels = Readonly<Record<string, string>>

export interface Resource {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels?: Labels }
  readonly data?: Labels
  readonly spec?: unknown
}

interface Container {
  readonly name: string
  readonly image: string
  readonly args?: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value: string }[]
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[]
  readonly resources?: unknown
  readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } }
}

interface PodSpec {
  readonly containers: readonly Container[]
  readonly initContainers?: readonly Container[]
  readonly terminationGracePeriodSeconds?: number
  readonly securityContext?: unknown
  readonly volumes?: readonly {
    readonly name: string
    readonly configMap?: { readonly name: string }
    readonly secret?: { readonly secretName: string }
  }[]
}

/** Copies `k8s/` to a directory named `k8s` in a directory, without files that init-sidecar.sh wrote. */
export function copyManifests(directory: string): string {
  const source = fileURLToPath(new URL('../../k8s', import.meta.url))
  const written =
    /one-service\/sidecar|argo-rollout\/sidecar$|examples\/helm\/(?:sidecar|charts|Chart\.lock)|one-issuer\/gateway\/(?!sidecar\.yaml)/
  cpSync(source, join(directory, 'k8s'), { recursive: true, filter: (path) => !written.test(path) })
  return join(directory, 'k8s')
}

/** Writes files by their paths below a directory; objects become JSON, which is YAML. */
export function write(directory: string, files: Readonly<Record<string, unknown>>): void {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, path)), { recursive: true })
    writeFileSync(join(directory, path), typeof content === 'string' ? content : JSON.stringify(content))
  }
}

/** Runs a command; returns its stdout. */
export function run(command: string, args: readonly string[], env: Labels = {}): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    env: { ...process.env, ...env },
  })
  if (status !== 0) {
    throw new Error(`${command} ${args.join(' ')}: ${error?.message ?? stderr}`)
  }
  return stdout
}

export function resourcesIn(text: string): Resource[] {
  return parseAllDocuments(text).map((document) => {
    const resource: Resource = document.toJS()
    if (resource.kind !== 'Secret') {
      return resource
    }
    // kustomize wraps long lines of base64; the validator accepts none.
    const data = Object.entries(resource.data ?? {}).map(([name, base64]) => [
      name,
      base64.replace(/\s/g, ''),
    ])
    return { ...resource, data: Object.fromEntries(data) }
  })
}

export const render = (directory: string): Resource[] => resourcesIn(run('kubectl', ['kustomize', directory]))

/** Pod specs and pod labels of all workloads. */
export function podsOf(resources: readonly Resource[]): { name: string; labels: Labels; spec: PodSpec }[] {
  return resources
    .filter(({ kind }) => /^(?:Deployment|StatefulSet|DaemonSet|Rollout)$/.test(kind))
    .map(({ metadata, spec }) => {
      const { template } = Object(spec)
      return { name: metadata.name, labels: template.metadata.labels, spec: template.spec }
    })
}

interface Model {
  readonly prototype: { validate(this: unknown): void }
}

/**
 * Lists everything that is wrong with an object by the schemas of kubernetes-models, unknown fields included:
 * the compiled validators read each field of the schema by its name, so a field that stays unread is unknown.
 */
export async function problemsOf(resource: Resource): Promise<string[]> {
  const { apiVersion, kind } = resource
  const isOperator = apiVersion.startsWith('monitoring.coreos.com/')
  const source = isOperator ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'
  const model: Model | undefined = await import(`${source}/${apiVersion}/${kind}`).then(
    (module) => module[kind],
    () => undefined,
  )
  if (model === undefined) {
    return [`no schema of ${apiVersion} ${kind}`]
  }
  const unread: (() => string[])[] = []
  try {
    model.prototype.validate.call(watched(resource, '', unread))
  } catch (error) {
    return [String(error)]
  }
  return unread.flatMap((fields) => fields()).map((field) => `${field} is unknown`)
}

/** Wraps a value in a proxy that records which of its fields are read. */
function watched(value: unknown, path: string, unread: (() => string[])[]): unknown {
  if (typeof value !== 'object' || value === null) {
    return value
  }
  const left = new Set(Array.isArray(value) ? [] : Object.keys(value))
  const views = new Map<string, unknown>()
  unread.push(() => [...left].map((field) => `${path}/${field}`))
  return new Proxy(value, {
    get(target, field) {
      const member: unknown = Reflect.get(target, field)
      if (typeof field === 'symbol') {
        return member
      }
      left.delete(field)
      if (!views.has(field)) {
        views.set(field, watched(member, `${path}/${field}`, unread))
      }
      return views.get(field)
    },
    ownKeys(target) {
      left.clear()
      return Reflect.ownKeys(target)
    },
  })
}
