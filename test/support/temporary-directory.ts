/** A directory for files that a test should not find beside others. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** Makes a temporary directory that goes away with the test. */
export async function temporaryDirectory(t: Pick<Test, 'teardown'>): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'sidecar-test-'))
  t.teardown(() => rm(directory, { recursive: true, force: true }))
  return directory
}
