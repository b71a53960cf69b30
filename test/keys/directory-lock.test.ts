import { existsSync } from 'node:fs'
import t from 'tap'
import { withDirectoryLock } from '../../src/keys/directory-lock.ts'

t.test('one change at a time: the second waits for the first', async (t) => {
  const directory = t.testdir({})
  const log: string[] = []
  const change = (name: string) =>
    withDirectoryLock(directory, async () => {
      log.push(`${name} begins`)
      await new Promise(setImmediate)
      log.push(`${name} ends`)
    })
  await Promise.all([change('one'), change('two')])
  t.equal(log.length, 4)
  t.equal(log[1], log[0]?.replace('begins', 'ends'), 'nothing came between')
})

t.test('the lock is released when the change fails', async (t) => {
  const directory = t.testdir({})
  const fault = new Error('no')
  await t.rejects(
    withDirectoryLock(directory, () => Promise.reject(fault)),
    fault,
  )
  t.notOk(existsSync(`${directory}/.lock`))
  t.equal(await withDirectoryLock(directory, async () => 'done'), 'done')
})

t.test('a change that never ends is not waited for', async (t) => {
  const directory = t.testdir({})
  await withDirectoryLock(directory, () =>
    t.rejects(
      withDirectoryLock(directory, async () => {}),
      { code: 'ELOCKED' },
    ),
  )
})
