import t from 'tap'
import { createDirectoryWatch, type Watch } from '../../src/files/directory-watch.ts'

/** Watches that are made and closed as told, and write down what is done with them. */
function pretend({ failing = new Set<string>() } = {}) {
  const done: string[] = []
  const tell = new Map<string, { event: (name: string | null) => void; fail: () => void }>()
  const watch: Watch = (directory, options, onEvent) => {
    if (failing.has(directory)) throw Object.assign(new Error('no more watches'), { code: 'ENOSPC' })
    t.equal(options.persistent, false)
    done.push(`watch ${directory}`)
    return {
      on: (_event, listener) =>
        tell.set(directory, {
          event: (name) => onEvent('change', name),
          fail: () => listener(new Error('x')),
        }),
      close: () => void done.push(`close ${directory}`),
    }
  }
  const events: string[] = []
  const faults: unknown[] = []
  const directoryWatch = createDirectoryWatch({
    onEvent: (directory, name) => events.push(`${directory} ${name}`),
    onFault: (cause) => faults.push(cause),
    watch,
  })
  const arm = (directories: Record<string, string>) => {
    done.length = 0
    directoryWatch.arm(new Map(Object.entries(directories)))
    return [...done]
  }
  return { arm, close: directoryWatch.close, done, events, faults, failing, tell }
}

t.test('a directory is watched once, until it is replaced or no longer wanted', async (t) => {
  const { arm, events, tell } = pretend()
  t.same(arm({ a: '1', b: '1' }), ['watch a', 'watch b'])
  t.same(arm({ a: '1', b: '1' }), [])
  t.same(arm({ a: '2', b: '1' }), ['close a', 'watch a'])
  t.same(arm({ a: '2' }), ['close b'])
  tell.get('a')?.event('file')
  t.same(events, ['a file'])
})

t.test(
  'a watch that fails is made anew, and an old one that fails late takes no new one along',
  async (t) => {
    const { arm, tell, done } = pretend()
    arm({ a: '1' })
    const first = tell.get('a')
    done.length = 0
    first?.fail()
    t.same(done, ['close a'])
    t.same(arm({ a: '1' }), ['watch a'])
    done.length = 0
    first?.fail()
    t.same(done, [])
    t.same(arm({ a: '1' }), [])
  },
)

t.test('a directory that cannot be watched is told once, and tried again', async (t) => {
  const { arm, failing, faults } = pretend({ failing: new Set(['a']) })
  t.same(arm({ a: '1', b: '1' }), ['watch b'])
  t.same(arm({ a: '1', b: '1' }), [])
  t.equal(faults.length, 1)
  failing.clear()
  t.same(arm({ a: '1', b: '1' }), ['watch a'])
  failing.add('a')
  arm({ a: '2', b: '1' })
  t.equal(faults.length, 2, 'it is told again when it had worked meanwhile')
})

t.test('once closed it watches nothing', async (t) => {
  const { arm, close, done } = pretend()
  arm({ a: '1', b: '1' })
  done.length = 0
  close()
  t.same(done, ['close a', 'close b'])
  t.same(arm({ a: '1' }), [])
})
