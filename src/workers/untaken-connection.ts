/**
 * Closes the connection that a worker was handed and died without taking.
 *
 * `node:cluster` accepts connections in the supervisor and hands each worker one at a time. It keeps its own descriptor
 * until the worker says that it has the connection, and for ever if the worker never does: the client of a worker that
 * hung would wait for nobody, and each such death would cost a descriptor. It has no event for this, so what it sends is
 * looked at; if it ever sends otherwise, this does nothing.
 *
 * @module
 */
import type { ChildProcess } from 'node:child_process'

/** What a connection is when it is handed over. */
interface Handle {
  close(): void
}

/** Makes what is to be done with each process right after it has been forked. */
export function createUntakenCloser(): (child: Pick<ChildProcess, 'send' | 'once'>) => void {
  /** Whom each was handed last: one that a worker did not want is handed to another. */
  const holders = new WeakMap<Handle, unknown>()
  return (child) => {
    let last: Handle | undefined
    child.send = new Proxy(child.send, {
      apply(send, self, args: unknown[]) {
        const handle = args[1]
        if (isHandle(handle)) {
          last = handle
          holders.set(handle, child)
        }
        return Reflect.apply(send, self, args)
      },
    })
    child.once('exit', () => {
      // One that was taken is closed here already, and closing it again does nothing.
      if (last !== undefined && holders.get(last) === child) last.close()
    })
  }
}

function isHandle(value: unknown): value is Handle {
  return typeof value === 'object' && value !== null && 'close' in value
}
