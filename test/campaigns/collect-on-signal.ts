/**
 * Loaded into the sidecar of a soak run: collects garbage whenever SIGUSR2 comes, so that its heap can be compared. The
 * program itself knows nothing of it.
 *
 * A snapshot of the heap begins with the most thorough collection that V8 has; `gc()` leaves compiled code that is not
 * used any more, some megabytes of it after a while.
 *
 * @module
 */
import { getHeapSnapshot } from 'node:v8'

process.on('SIGUSR2', () => {
  getHeapSnapshot().destroy()
})
