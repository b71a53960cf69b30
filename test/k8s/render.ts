/**
 * What `kubectl kustomize` makes of the deployment files.
 *
 * Works on a copy of them, so that secrets which a test makes are not left in the checkout.
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseAllDocuments } from 'yaml'

/** One object as it would be applied. */
export interface Resource {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly labels?: Labels }
  readonly [field: string]: unknown
}

/** Names and values. */
export type Labels = Readonly<Record<string, string>>

/** Whether there is a kubectl to render with. */
export const CAN_RENDER = spawnSync('kubectl', ['version', '--client']).status === 0

/** Copies `k8s/` into a directory, without secrets that somebody made there; returns where it is. */
export function copyManifests(directory: string): string {
  const copy = join(directory, 'k8s')
  const source = fileURLToPath(new URL('../../k8s', import.meta.url))
  cpSync(source, copy, { recursive: true, filter: (path) => !path.endsWith('/secrets') })
  return copy
}

/** What making secrets printed: a login. */
export interface Login {
  readonly accountId: string
  readonly accessKey: string
  readonly secret: string
}

/** Makes secrets by the script that operators use; the program is run from its sources. */
export function makeSecrets(script: string, args: readonly string[]): Login | undefined {
  const loader = import.meta.resolve('ts-blank-space/register')
  const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
  const program = `env -u NODE_OPTIONS ${process.execPath} --import=${loader} ${main}`
  const stdout = run(script, args, { STORAGE_AUTH_SIDECAR: program })
  return stdout === '' ? undefined : JSON.parse(stdout)
}

/** Renders a kustomization. */
export function render(directory: string): Resource[] {
  const documents = parseAllDocuments(run('kubectl', ['kustomize', directory]))
  if (!Array.isArray(documents)) throw new Error(`${directory} renders to nothing`)
  return documents.map((document) => {
    const resource: Resource = document.toJS()
    return resource.kind === 'Secret' ? { ...resource, data: unwrapped(resource['data']) } : resource
  })
}

/** Long lines of base64 are wrapped; Kubernetes passes over the line breaks, and other decoders do not. */
function unwrapped(data: unknown): Labels {
  return Object.fromEntries(
    Object.entries(data ?? {}).map(([name, base64]) => [name, String(base64).replace(/\s/g, '')]),
  )
}

function run(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    env: { ...process.env, ...env },
  })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${error?.message ?? stderr}`)
  return stdout
}
