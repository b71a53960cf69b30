/**
 * Runs Node with the memory limit of a container, by a cgroup: V8 sizes its heap by the limit.
 * Only root may make a cgroup.
 */
import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const HIERARCHIES = [
  { directory: '/sys/fs/cgroup/memory', limit: 'memory.limit_in_bytes' }, // version 1
  { directory: '/sys/fs/cgroup', limit: 'memory.max' }, // version 2
]
const NAME = 'storage-auth-sidecar-bench'

export interface LimitedNode {
  /** Runs Node with the arguments that it is given. */
  readonly script: string
  /** Once its processes have ended. */
  readonly remove: () => void
}

/**
 * Returns undefined where no cgroup can be made.
 * @param directory - for the script
 */
export function limitMemory(directory: string, node: string, bytes: number): LimitedNode | undefined {
  for (const hierarchy of HIERARCHIES) {
    const group = join(hierarchy.directory, NAME)
    try {
      mkdirSync(group, { recursive: true })
      writeFileSync(join(group, hierarchy.limit), String(bytes))
    } catch {
      continue // not this version, not root, or not writable
    }
    const script = join(directory, 'limited-node')
    const text = `#!/bin/sh\necho $$ > ${join(group, 'cgroup.procs')}\nexec ${node} "$@"\n`
    writeFileSync(script, text, { mode: 0o755 })
    return { script, remove: () => rmdirSync(group) }
  }
  return undefined
}
