/**
 * Runs the sidecar of a rendered pod, as a kubelet would, on this machine.
 *
 * Volumes become directories with the files and modes that the pod asks for, arguments are the container's, and the
 * settings are those of its ConfigMap. Changed are: the directory that all of it is below, the names of other hosts,
 * and the ports.
 *
 * @module
 */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type ServedSidecar, serve } from '../support/program.ts'
import { ours, type Pods } from './pods.ts'
import type { Labels, Resource } from './render.ts'

/** Where everything is mounted in the container. */
const MOUNTED_AT = '/etc/storage-auth-sidecar'

/** Runs it until the end of the test. `hosts`: what stands for an origin that the settings name. */
export async function runPod(
  t: Test,
  resources: readonly Resource[],
  pods: Pods,
  hosts: Readonly<Record<string, string>>,
): Promise<ServedSidecar> {
  const root = t.testdir()
  const translate = (text: string) =>
    Object.entries({ ...hosts, [MOUNTED_AT]: root }).reduce(
      (all, [from, to]) => all.replaceAll(from, to),
      text,
    )
  const container = ours(pods)
  for (const { name, mountPath } of container.volumeMounts ?? []) {
    const { configMap, secret } = pods.spec.volumes?.find((volume) => volume.name === name) ?? {}
    const { data } = resources.find(
      ({ kind, metadata }) =>
        (kind === 'ConfigMap' && metadata.name === configMap?.name) ||
        (kind === 'Secret' && metadata.name === secret?.secretName),
    ) as { data?: Labels } & Resource
    const files = Object.entries(data ?? {}).map(([file, content]): [string, string | Buffer] => [
      file,
      secret === undefined ? translate(content) : Buffer.from(content, 'base64'),
    ])
    mountVolume(translate(mountPath), files, secret?.defaultMode ?? 0o644)
  }
  const [command, flag, file = ''] = container.args ?? []
  t.strictSame([command, flag], ['serve', '--config'])
  return serve(t, { config: translate(file) }, { unmeasured: true })
}

/** A volume as the kubelet makes it: the files in a directory of their own, and links that a change swaps. */
function mountVolume(path: string, files: readonly [string, string | Buffer][], mode: number): void {
  const version = '..2026_11_20_00_00_00.000000001'
  mkdirSync(join(path, version), { recursive: true })
  for (const [name, content] of files) {
    writeFileSync(join(path, version, name), content, { mode })
    symlinkSync(join('..data', name), join(path, name))
  }
  symlinkSync(version, join(path, '..data'))
}
