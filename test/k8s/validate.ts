/**
 * Validates Kubernetes objects strictly: types, required and allowed values, and no field that the schema does not have.
 *
 * The validators of the package are compiled and pass unknown fields over. What they look at, however, is what they
 * know: they read each field of the schema by its name, and enumerate the members of maps. A field that stays unread
 * is unknown to the schema.
 *
 * @module
 */
import type { Resource } from './render.ts'

interface Model {
  readonly prototype: { validate(this: unknown): void }
}

/** Everything that is wrong with an object; empty when it is valid. */
export async function problemsOf(resource: Resource): Promise<string[]> {
  const model = await modelOf(resource)
  if (model === undefined) return [`there is no schema of ${resource.apiVersion} ${resource.kind}`]
  const unread: (() => string[])[] = []
  try {
    model.prototype.validate.call(watched(resource, '', unread))
  } catch (error) {
    return [String(error)]
  }
  return unread.flatMap((fields) => fields()).map((field) => `${field} is unknown`)
}

/** The schemas of core objects and of the Prometheus operator. */
async function modelOf({ apiVersion, kind }: Resource): Promise<Model | undefined> {
  const [group = ''] = apiVersion.split('/')
  const source =
    group === 'monitoring.coreos.com' ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'
  try {
    return (await import(`${source}/${apiVersion}/${kind}`))[kind]
  } catch {
    return undefined
  }
}

/** A view of a value that notes which of its fields nobody has read. */
function watched(value: unknown, path: string, unread: (() => string[])[]): unknown {
  if (typeof value !== 'object' || value === null) return value
  const left = new Set(Array.isArray(value) ? [] : Object.keys(value))
  const views = new Map<string | symbol, unknown>()
  unread.push(() => [...left].map((field) => `${path}/${field}`))
  return new Proxy(value, {
    get(target, field) {
      const member: unknown = Reflect.get(target, field)
      if (typeof field === 'symbol') return member
      left.delete(field)
      if (!views.has(field)) views.set(field, watched(member, `${path}/${field}`, unread))
      return views.get(field)
    },
    ownKeys(target) {
      left.clear()
      return Reflect.ownKeys(target)
    },
  })
}
