import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Page } from 'playwright-core'
import t from 'tap'
import { createAdminListener } from '../../src/ops/admin.ts'
import type { Status } from '../../src/ops/status/status.ts'
import { NO_BROWSER, openPage, startBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
import { tenBusyMinutes } from '../support/status-scene.ts'

/** Where screenshots are to be kept; they are not made otherwise: `SCREENSHOTS=docs/screenshots`. */
const SCREENSHOTS = process.env['SCREENSHOTS']

const LOOKS = {
  light: { colorScheme: 'light', viewport: { width: 1024, height: 900 } },
  dark: { colorScheme: 'dark', viewport: { width: 1024, height: 900 } },
  phone: {
    colorScheme: 'light',
    viewport: { width: 360, height: 740 },
    isMobile: true,
  },
} as const

/** What axe-core, run inside the page, finds that people with disabilities stumble over. */
async function obstacles(page: Page): Promise<string[]> {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'))
  // axe waits by the page's clock, which stands still in tests.
  await page.clock.resume()
  return page.evaluate<string[]>(
    "axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => id + ' ' + target + ' ' + failureSummary)))",
  )
}

const visibleText = (page: Page) => page.evaluate<string>('document.body.innerText')

async function statusOf({ adminPort }: TestSidecar): Promise<Status> {
  return (await fetch(`http://127.0.0.1:${adminPort}/status.json`)).json() as Promise<Status>
}

/** Sends requests: so many good ones, and some of each kind that is refused. */
async function traffic({ port, token, mint }: TestSidecar, good: number) {
  const get = async (headers: Record<string, string>) =>
    (await fetch(`http://127.0.0.1:${port}/object`, { headers })).arrayBuffer()
  const bearer = (value: string) => ({ authorization: `Bearer ${value}` })
  for (let i = 0; i < good; i++) await get(bearer(token))
  await get({})
  await get({})
  await get(bearer('a.b'))
  await get(bearer(await mint({ header: { kid: 'unheard-of' } })))
  const iat = Math.floor(Date.now() / 1000) - 100
  await get(bearer(await mint({ claims: { iat, exp: iat + 10 } })))
}

/** The texts of the cells of a table's row. */
async function cells(page: Page, part: string, row: string): Promise<string[]> {
  const found = page
    .locator(`#${part} tr`)
    .filter({ has: page.locator('th', { hasText: new RegExp(`^${row}`) }) })
  return (await found.locator('td').allInnerTexts()).map((text) => text.trim())
}

t.test('the page in a real browser', { skip: NO_BROWSER }, async (t) => {
  const browser = await startBrowser(t)
  const upstream = await recordingUpstream(t)
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
  const url = `http://127.0.0.1:${sidecar.adminPort}/`
  await traffic(sidecar, 20)
  const { page, complaints } = await openPage(browser, url, LOOKS.light)
  /** Lets the page's clock run until it has asked again, and gives what it was told. */
  const refreshed = async () => {
    const [response] = await Promise.all([page.waitForResponse('**/status.json'), page.clock.runFor(5000)])
    const status = (await response.json()) as Status
    await page.locator(`#updated time[datetime="${status.time}"]`).waitFor()
    return status
  }

  await t.test('says at once how things are, before any script has run', async (t) => {
    const text = await visibleText(page)
    t.match(text, 'Storage auth sidecar')
    t.match(text, /Ready\s+✓\s*keys ok\s+✓\s*credentials ok\s+✓\s*accepting ok/)
    t.equal(await page.title(), '✓ Ready · Storage auth sidecar')
    t.match(await cells(page, 'rejections', 'missing'), ['', /^(?:–|[\d.]+)$/, '2'])
  })

  await t.test('refreshes itself, and shows what status.json says', async (t) => {
    await eventually(async () => !(await statusOf(sidecar)).window.collecting, 'the first rates')
    await traffic(sidecar, 30)
    const status = await refreshed()
    t.match(status, {
      requests: { byStatus: { '2xx': 50, '4xx': 10 } },
      rejections: { count: 10, byReason: { missing: 4, malformed: 2, unknown_key: 2, expired: 2 } },
      keys: [{ kid: sidecar.key.kid, signs: true }],
      upstreams: [{ prefix: '/', state: 'ok', count: 50, failed: 0 }],
    })
    for (const [reason, count] of Object.entries(status.rejections.byReason)) {
      t.equal((await cells(page, 'rejections', reason)).at(-1), String(count), reason)
    }
    t.equal((await cells(page, 'routes', 'all'))[0], String(status.requests.count))
    t.match(await cells(page, 'upstreams', '/'), [/ok$/, '50', /^0/])
    t.match(await cells(page, 'keys', sidecar.key.kid), ['ES256', /signs$/])
    const text = await visibleText(page)
    t.match(text, `Updated ${status.time.slice(11, 19)} UTC`)
    t.match(text, `${status.cache.entries} of 10,000`)
    t.match(text, `${status.requests.inFlight}\n${status.requests.connections} connections`)
    t.match(text, 'file · loaded')
    t.equal(await page.locator('svg[role=img]').count(), 2 + Object.keys(status.rejections.byReason).length)
    t.equal((await refreshed()).version, status.version, 'and again')
  })

  await t.test('asks nothing while nobody sees it', async (t) => {
    const asked: string[] = []
    page.on('request', (request) => void asked.push(request.url()))
    const see = (state: string) =>
      page.evaluate(
        `Object.defineProperty(document, 'visibilityState', { value: '${state}', configurable: true }); document.dispatchEvent(new Event('visibilitychange'))`,
      )
    await see('hidden')
    await page.clock.runFor(60_000)
    t.strictSame(asked, [])
    await Promise.all([page.waitForResponse('**/status.json'), see('visible')])
    t.strictSame(asked, [`${url}status.json`])
  })

  await t.test('does nothing that its policy forbids, and asks nobody else', async (t) => {
    t.strictSame(complaints, [])
  })

  await t.test('says when an upstream fails', async (t) => {
    await upstream.close()
    await traffic(sidecar, 3)
    const { upstreams } = await refreshed()
    t.match(upstreams, [{ failed: 3, outcomes: { connection_refused: 3 } }])
    t.match(await visibleText(page), /(failing|degraded)\s+connection_refused at/)
  })

  await t.test('says when the sidecar cannot be reached, and since when', async (t) => {
    await sidecar.stop()
    await Promise.all([page.waitForEvent('requestfailed'), page.clock.runFor(5000)])
    const alert = page.getByRole('alert')
    await alert.getByText('Unreachable').waitFor()
    t.match(await alert.innerText(), /Unreachable\s+since \d\d:\d\d:\d\d UTC \(0 s\)/)
    t.equal(await page.title(), '✕ Unreachable · Storage auth sidecar')
    await Promise.all([page.waitForEvent('requestfailed'), page.clock.runFor(5000)])
    await alert.getByText('5 s').waitFor()
  })
})

t.test('the page after ten busy minutes', { skip: NO_BROWSER }, async (t) => {
  const browser = await startBrowser(t)
  const scene = await tenBusyMinutes()
  const admin = createAdminListener({
    host: '127.0.0.1',
    port: 0,
    exposition: scene.registry,
    ready: () => [],
    jwks: () => ({ keys: [] }),
    status: {
      ...scene.reporter,
      start: () => {},
      report: async () => withoutThisMachine(await scene.reporter.report()),
    },
    onFault: (error) => t.error(error),
  })
  const { port } = await admin.listen()
  t.teardown(() => admin.close())

  for (const [name, look] of Object.entries(LOOKS)) {
    await t.test(`${name}: nothing sticks out, and everybody can use it`, async (t) => {
      const { page, complaints } = await openPage(browser, `http://127.0.0.1:${port}/`, look)
      const wide = await page.evaluate<number>('document.documentElement.scrollWidth')
      t.ok(wide <= look.viewport.width, `${wide} pixels wide`)
      t.strictSame(await overlong(page), [], 'no text leaves its cell')
      const text = await visibleText(page)
      for (const words of [
        'Ready',
        'Requests per second',
        'Latency',
        'unknown_key',
        'degraded',
        'rotation-2026-11',
      ]) {
        t.match(text, words)
      }
      t.strictSame(await obstacles(page), [])
      t.strictSame(complaints, [])
      if (SCREENSHOTS !== undefined) {
        mkdirSync(SCREENSHOTS, { recursive: true })
        const { width } = look.viewport
        // As high as tells enough, so that the repository stays small.
        const clip = {
          x: 0,
          y: 0,
          width,
          height: Math.min(1700, await page.evaluate<number>('document.body.scrollHeight')),
        }
        await page.screenshot({ path: `${SCREENSHOTS}/status-page-${name}.png`, fullPage: true, clip })
      }
    })
  }
})

/** What the machine does that runs the test has no place in the picture. */
function withoutThisMachine(status: Status): Status {
  const lag = { eventLoopLagP99Seconds: 0.0012, eventLoopLagWorstSeconds: 0.0184 }
  return { ...status, node: 'v24.22.1', process: { ...status.process, rssBytes: 71_300_000, ...lag } }
}

/** The texts of elements that are wider than they may be. */
function overlong(page: Page): Promise<string[]> {
  return page.evaluate(
    "[...document.querySelectorAll('section, td, tbody th, dd, li, p')].filter((e) => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.slice(0, 60))",
  )
}
