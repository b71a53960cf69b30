/**
 * Watches directories, as long as the system lets us.
 *
 * In: the directories that are there now. Out: a call soon after something changes in one of them. A directory
 * that was replaced is watched anew once it is told here, as a watch stays with the old one and says nothing. No
 * fault is fatal, the limit of watches of a machine (inotify) least of all: whoever watches has to look by himself
 * from time to time anyway.
 *
 * @module
 */
import { watch as fsWatch } from 'node:fs'

/** `fs.watch`, as far as it is used here. */
export type Watch = (
  directory: string,
  options: { readonly persistent: false },
  onEvent: (event: string, name: string | null) => void,
) => { on(event: 'error', listener: (error: Error) => void): unknown; close(): void }

/** What a watch works with. */
export interface DirectoryWatchOptions {
  /** Something changed; `name` in that directory, where the system says which. */
  readonly onEvent: (directory: string, name: string | null) => void
  /** A directory cannot be watched. Told once, until all of them could be. */
  readonly onFault: (cause: unknown) => void
  /** Default: `fs.watch`. */
  readonly watch?: Watch
}

/** Watches on a set of directories. They do not keep the process alive. */
export interface DirectoryWatch {
  /** Watches exactly these. The values are others once a directory was replaced. Does nothing once closed. */
  arm(directories: ReadonlyMap<string, string>): void
  close(): void
}

/** Begins with no directory. */
export function createDirectoryWatch({
  onEvent,
  onFault,
  watch = fsWatch,
}: DirectoryWatchOptions): DirectoryWatch {
  const armed = new Map<string, { readonly identity: string; close(): void }>()
  let faulty = false
  let closed = false

  const disarm = (directory: string) => {
    armed.get(directory)?.close()
    armed.delete(directory)
  }

  const armOne = (directory: string, identity: string) => {
    const watcher = watch(directory, { persistent: false }, (_event, name) => onEvent(directory, name))
    const entry = { identity, close: () => watcher.close() }
    armed.set(directory, entry)
    // The entry goes only if it is still this one's; the next `arm` makes a new one.
    const isArmed = () => armed.get(directory) === entry
    watcher.on('error', () => isArmed() && disarm(directory))
  }

  return {
    arm(directories) {
      if (closed) return
      for (const [directory, { identity }] of armed) {
        if (directories.get(directory) !== identity) disarm(directory)
      }
      let fault: { readonly cause: unknown } | undefined
      for (const [directory, identity] of directories) {
        if (armed.has(directory)) continue
        try {
          armOne(directory, identity)
        } catch (cause) {
          fault = { cause }
        }
      }
      if (fault !== undefined && !faulty) onFault(fault.cause)
      faulty = fault !== undefined
    },
    close() {
      closed = true
      for (const directory of [...armed.keys()]) disarm(directory)
    },
  }
}
