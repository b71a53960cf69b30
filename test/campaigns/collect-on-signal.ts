/**
 * Loaded into the sidecar of a soak run, beside `--expose-gc`: collects garbage whenever SIGUSR2 comes, so that its heap
 * can be compared. The program itself knows nothing of it.
 *
 * @module
 */
process.on('SIGUSR2', () => {
  globalThis.gc?.()
  globalThis.gc?.()
})
