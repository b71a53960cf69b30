/**
 * The pods that rendered objects would make, as far as tests look at them.
 *
 * @module
 */
import type { Labels, Resource } from './render.ts'

/** A probe by HTTP. */
export interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string | number }
  readonly periodSeconds?: number
  readonly failureThreshold?: number
}

/** One container. */
export interface Container {
  readonly name: string
  readonly image: string
  readonly args?: readonly string[]
  readonly restartPolicy?: string
  readonly ports?: readonly { readonly name?: string; readonly containerPort: number }[]
  readonly startupProbe?: Probe
  readonly readinessProbe?: Probe
  readonly livenessProbe?: Probe
  readonly lifecycle?: { readonly preStop?: { readonly sleep?: { readonly seconds: number } } }
  readonly resources?: {
    readonly requests?: Readonly<Record<string, string>>
    readonly limits?: Readonly<Record<string, string>>
  }
  readonly securityContext?: SecurityContext
  readonly volumeMounts?: readonly {
    readonly name: string
    readonly mountPath: string
    readonly readOnly?: boolean
    readonly subPath?: string
  }[]
}

/** What a container, or all of a pod, may do. */
export interface SecurityContext {
  readonly runAsNonRoot?: boolean
  readonly runAsUser?: number
  readonly runAsGroup?: number
  readonly fsGroup?: number
  readonly allowPrivilegeEscalation?: boolean
  readonly readOnlyRootFilesystem?: boolean
  readonly capabilities?: { readonly drop?: readonly string[]; readonly add?: readonly string[] }
  readonly seccompProfile?: { readonly type: string }
}

/** A volume of a pod. */
export interface Volume {
  readonly name: string
  readonly configMap?: { readonly name: string }
  readonly secret?: { readonly secretName: string; readonly defaultMode?: number }
}

/** The pods of one Deployment. */
export interface Pods {
  readonly owner: Resource
  readonly labels: Labels
  readonly spec: {
    readonly containers: readonly Container[]
    readonly initContainers?: readonly Container[]
    readonly terminationGracePeriodSeconds?: number
    readonly automountServiceAccountToken?: boolean
    readonly securityContext?: SecurityContext
    readonly volumes?: readonly Volume[]
  }
}

/** The pods of each Deployment and StatefulSet. */
export function podsOf(resources: readonly Resource[]): Pods[] {
  return resources
    .filter(({ kind }) => kind === 'Deployment' || kind === 'StatefulSet')
    .map((owner) => {
      const { template } = owner['spec'] as {
        template: { metadata: { labels: Labels }; spec: Pods['spec'] }
      }
      return { owner, labels: template.metadata.labels, spec: template.spec }
    })
}

/** All containers of a pod. */
export function containersOf({ spec }: Pods): Container[] {
  return [...(spec.initContainers ?? []), ...spec.containers]
}

/** The container that is ours. */
export function ours(pods: Pods): Container {
  const found = containersOf(pods).find(({ name }) => name === 'storage-auth-sidecar')
  if (found === undefined) throw new Error(`no sidecar in ${pods.owner.metadata.name}`)
  return found
}

/** Whether labels satisfy a selector. */
export function selects(wanted: Labels | undefined, labels: Labels): boolean {
  return Object.entries(wanted ?? {}).every(([name, value]) => labels[name] === value)
}
