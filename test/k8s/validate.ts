/**
 * Validates Kubernetes objects against the schemas of kubernetes-models, unknown fields included: the compiled
 * validators read each field of the schema by its name, so a field that stays unread is unknown.
 */
import type { Resource } from './render.ts'

interface Model {
  readonly prototype: { validate(this: unknown): void }
}

/** Lists everything that is wrong with an object; empty when it is valid. */
export async function problemsOf(resource: Resource): Promise<string[]> {
  const { apiVersion, kind } = resource
  const isOperator = apiVersion.startsWith('monitoring.coreos.com/')
  const source = isOperator ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'
  const model: Model | undefined = await import(`${source}/${apiVersion}/${kind}`).then(
    (module) => module[kind],
    () => undefined,
  )
  if (model === undefined) return [`no schema of ${apiVersion} ${kind}`]
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
  if (typeof value !== 'object' || value === null) return value
  const left = new Set(Array.isArray(value) ? [] : Object.keys(value))
  const views = new Map<string, unknown>()
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
