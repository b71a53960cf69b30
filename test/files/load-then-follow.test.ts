import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type LoadThenFollowOptions, loadThenFollow } from '../../src/files/load-then-follow.ts'
import { createLog } from '../../src/ops/log.ts'
import { eventually } from '../support/eventually.ts'

/** A file, and how to load it and go on following it. */
function scene(t: Test) {
  const file = join(t.testdir({ file: 'one' }), 'file')
  const load = async () => ({ ok: true, value: readFileSync(file, 'utf8'), warnings: ['careful'] }) as const
  const options: LoadThenFollowOptions<string, { readonly setting: string }> = {
    subject: 's',
    paths: [file],
    loadFirst: load,
    load,
    log: createLog('info', { write: () => {} }),
    now: Date.now,
    settleMs: 10,
  }
  return { file, options }
}

t.test('what changes from the first load on is in force once it is followed', async (t) => {
  const { file, options } = scene(t)
  const changes: string[] = []
  const first = await loadThenFollow({
    ...options,
    async loadFirst() {
      const loaded = await options.loadFirst()
      writeFileSync(file, 'two.') // while it is loaded
      return loaded
    },
    onChange: (value) => void changes.push(value),
  })
  if (!first.ok) throw new Error('it was not loaded')
  t.same(first.warnings, ['careful'])
  t.same(changes, [], 'nothing is followed yet')
  const following = first.follow()
  t.teardown(following.stop)
  t.equal(following.current(), 'one')
  await eventually(() => following.current() === 'two.', 'the change')
  t.same(changes, ['two.'])
})

t.test('what cannot be loaded is told in the words of the first load, and not followed', async (t) => {
  const { options } = scene(t)
  const problems = [{ setting: 'keys.directory' }]
  const first = await loadThenFollow({ ...options, loadFirst: async () => ({ ok: false, problems }) })
  t.same(first, { ok: false, problems })
})
