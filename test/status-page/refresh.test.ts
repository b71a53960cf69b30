import t from 'tap'
import type { Status } from '../../src/ops/status/status.ts'
import { keepFresh, type PageWindow, titleOf } from '../../src/status-page/refresh.ts'
import { NOON, statusScene } from '../support/status-scene.ts'

/** A browser that does what a test tells it to. */
function fakeBrowser() {
  const elements = new Map<string, ReturnType<typeof fakeElement>>()
  const timers: (() => void)[] = []
  const listeners: (() => void)[] = []
  const clock = { ms: NOON }
  const state = {
    visibility: 'visible',
    asked: [] as string[],
    reloaded: 0,
    answer: async (): Promise<{ ok: boolean; json(): Promise<unknown> }> => ({
      ok: false,
      json: async () => ({}),
    }),
  }
  function fakeElement() {
    const classes = new Set<string>()
    let html = ''
    let writes = 0
    return {
      dataset: { version: '1.2.3' },
      classes,
      classList: {
        toggle: (name: string, force: boolean) => (force ? classes.add(name) : classes.delete(name)),
      },
      get innerHTML() {
        return html
      },
      set innerHTML(value: string) {
        html = value
        writes++
      },
      get writes() {
        return writes
      },
    }
  }
  const body = fakeElement()
  const element = (id: string) => {
    const known = elements.get(id) ?? fakeElement()
    elements.set(id, known)
    return known
  }
  const document = {
    title: '',
    body,
    get visibilityState() {
      return state.visibility
    },
    getElementById: (id: string) => (id === 'about' ? null : element(id)),
    addEventListener: (_: string, listener: () => void) => void listeners.push(listener),
  }
  const window: PageWindow = {
    document,
    location: { reload: () => void state.reloaded++ },
    fetch: (url) => {
      state.asked.push(url)
      return state.answer()
    },
    setTimeout: (callback) => timers.push(callback),
    clearTimeout: () => void timers.splice(0),
    Date: { now: () => clock.ms },
  }
  return {
    window,
    document,
    body,
    element,
    clock,
    state,
    timers,
    /** Lets the timer fire, and everything it starts end. */
    async tick() {
      timers.shift()?.()
      await new Promise((resolve) => setImmediate(resolve))
    },
    async setVisible(visible: boolean) {
      state.visibility = visible ? 'visible' : 'hidden'
      for (const listener of listeners) listener()
      await new Promise((resolve) => setImmediate(resolve))
    },
    answerWith: (status: Partial<Status>) => {
      state.answer = async () => ({ ok: true, json: async () => status })
    },
  }
}

const aStatus = () => statusScene().reporter.report()

t.test('the page asks for the status again and again, and shows what it is told', async (t) => {
  const browser = fakeBrowser()
  const status = await aStatus()
  browser.answerWith(status)
  keepFresh(browser.window)
  t.strictSame(browser.state.asked, [], 'the page is fresh as it comes')
  await browser.tick()
  await browser.tick()
  t.strictSame(browser.state.asked, ['status.json', 'status.json'])
  t.match(browser.element('verdict').innerHTML, 'Ready')
  t.match(browser.element('updated').innerHTML, '>12:00:00 UTC<')
  t.equal(browser.document.title, '✓ Ready · Storage auth sidecar')
  t.equal(
    browser.element('verdict').writes,
    1,
    'what is the same is not written again: readers and selections stay',
  )
})

t.test('a page that nobody sees asks nothing, and asks at once when it is seen again', async (t) => {
  const browser = fakeBrowser()
  browser.answerWith(await aStatus())
  keepFresh(browser.window)
  await browser.setVisible(false)
  t.equal(browser.timers.length, 0)
  t.equal(browser.state.asked.length, 0)
  await browser.setVisible(true)
  t.equal(browser.state.asked.length, 1)
  t.equal(browser.timers.length, 1)
})

t.test(
  'a question under way is not asked twice, nor followed by another once the page is hidden',
  async (t) => {
    const browser = fakeBrowser()
    const status = await aStatus()
    let answer: (response: { ok: boolean; json(): Promise<unknown> }) => void = () => {}
    browser.state.answer = () =>
      new Promise((resolve) => {
        answer = resolve
      })
    keepFresh(browser.window)
    await browser.tick()
    await browser.setVisible(true)
    t.equal(browser.state.asked.length, 1)
    await browser.setVisible(false)
    answer({ ok: true, json: async () => status })
    await new Promise((resolve) => setImmediate(resolve))
    t.equal(browser.timers.length, 0)
  },
)

t.test('a sidecar that does not answer is told of, and since when, until it answers', async (t) => {
  const browser = fakeBrowser()
  browser.state.answer = async () => {
    throw new TypeError('network')
  }
  keepFresh(browser.window)
  await browser.tick()
  t.match(browser.element('trouble').innerHTML, '<b>Unreachable</b> since 12:00:00 UTC (0 s).')
  t.equal(browser.document.title, '✕ Unreachable · Storage auth sidecar')
  t.ok(browser.body.classes.has('stale'))
  browser.clock.ms += 65_000
  browser.state.answer = async () => ({ ok: false, json: async () => ({}) })
  await browser.tick()
  t.match(
    browser.element('trouble').innerHTML,
    'since 12:00:00 UTC (1 min)',
    'an answer that is none counts as well',
  )
  browser.answerWith(await aStatus())
  await browser.tick()
  t.equal(browser.element('trouble').innerHTML, '')
  t.notOk(browser.body.classes.has('stale'))
  browser.state.answer = async () => {
    throw new TypeError('network')
  }
  await browser.tick()
  t.match(
    browser.element('trouble').innerHTML,
    'since 12:01:05 UTC (0 s)',
    'a new trouble has a new beginning',
  )
})

t.test('a sidecar of another version brings its own page', async (t) => {
  const browser = fakeBrowser()
  browser.answerWith({ ...(await aStatus()), version: '9.9.9' })
  keepFresh(browser.window)
  await browser.tick()
  t.equal(browser.state.reloaded, 1)
  t.equal(browser.element('verdict').writes, 0)
})

t.test('the tab says how it is', async (t) => {
  t.equal(titleOf({ ready: true }), '✓ Ready · Storage auth sidecar')
  t.equal(titleOf({ ready: false }), '✕ Not ready · Storage auth sidecar')
  t.equal(titleOf(undefined), '✕ Unreachable · Storage auth sidecar')
})
