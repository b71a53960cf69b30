import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loaded } from '../../src/base/result.ts'
import { FileWatch } from '../../src/reload/file-watch.ts'
import { openPolledFiles } from '../../src/reload/polled-files.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { WAYS_OF_WRITING } from '../support/ways-of-writing.ts'

const NAME = 'list.yaml'

function startWatch(t: Test, paths: readonly string[]) {
  const counts = { changes: 0 }
  const watch = new FileWatch()
  t.teardown(() => watch.stop())
  // The watch itself does not keep the process alive.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  watch.start(() => counts.changes++)
  watch.watch(paths)
  return { watch, counts }
}

for (const [way, write] of Object.entries(WAYS_OF_WRITING)) {
  t.test(`a file is seen when ${way}`, async (t) => {
    const directory = join(await temporaryDirectory(t), 'volume')
    write(directory, NAME, '0')
    const { counts } = startWatch(t, [join(directory, NAME)])
    let version = 0
    // The first versions may be what the watch begins with.
    await eventually(() => {
      write(directory, NAME, `${++version}`)
      return counts.changes > 0
    }, 'a change')
    t.pass()
  })
}

t.test('a new file is seen by its directory', async (t) => {
  const directory = await temporaryDirectory(t)
  const { counts } = startWatch(t, [directory])
  let names = 0
  await eventually(() => {
    mkdirSync(join(directory, `${++names}`))
    return counts.changes > 0
  }, 'a change')
  t.pass()
})

t.test('paths are known as watched from the second call on, once started and until stopped', async (t) => {
  const paths = [join(await temporaryDirectory(t), NAME)]
  t.equal(new FileWatch().watch(paths), false)
  const { watch } = startWatch(t, paths)
  t.equal(watch.watch([...paths]), true)
  t.equal(watch.watch([...paths, '/']), false)
  t.equal(watch.watch([...paths, '/']), true)
  watch.stop()
  t.equal(watch.watch(paths), false)
})

for (const [way, write] of Object.entries(WAYS_OF_WRITING)) {
  t.test(`a version is loaded soon after days without one when ${way}`, async (t) => {
    const directory = join(await temporaryDirectory(t), 'volume')
    const path = join(directory, NAME)
    write(directory, NAME, '0')
    let loads = 0
    const opened = await openPolledFiles({
      subject: 'list',
      paths: [path],
      load: async () => loaded(++loads),
      onReload() {},
      log: { info() {}, warn() {}, error() {} },
    })
    if (!opened.ok) {
      throw new Error('not opened')
    }
    const file = opened.value
    t.teardown(() => file.stop())
    // The timers of the rare polls never end: only the watch can find the version.
    const isRare = (delayMs: number) => delayMs >= 1000
    const delaysMs: number[] = []
    const { setTimeout } = globalThis
    const early = (call: () => void, delayMs: number) => {
      delaysMs.push(delayMs)
      return isRare(delayMs) ? { unref() {} } : setTimeout(call, delayMs)
    }
    t.intercept(globalThis, 'setTimeout', { value: early })
    const alive = setInterval(() => {}, 1000)
    t.teardown(() => clearInterval(alive))
    file.start()
    const isWatched = () => isRare(delaysMs.at(-1) ?? 0)
    await eventually(isWatched, 'the watch')
    write(directory, NAME, '1')
    await eventually(() => file.current() > 1, 'the new version')
    t.pass()
  })
}
