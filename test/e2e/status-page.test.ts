import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { hostname } from 'node:os'
import type { Page, Route } from 'playwright-core'
import t from 'tap'
import { createAdminListener } from '../../src/ops/admin.ts'
import type { StatusDocument } from '../../src/ops/status-document.ts'
import { NO_BROWSER, openPage, startBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
import { INCIDENTS, statusIn } from '../support/status-incidents.ts'
import { tenBusyMinutes } from '../support/status-setup.ts'

/** Where screenshots are written: `SCREENSHOTS=docs/screenshots`. */
const SCREENSHOTS = process.env['SCREENSHOTS']

/** Where screenshots of incidents are written, for a look at them. */
const SCREENSHOTS_OF_INCIDENTS = process.env['INCIDENT_SCREENSHOTS']

const LOOKS = {
  light: { colorScheme: 'light', viewport: { width: 1280, height: 900 } },
  dark: { colorScheme: 'dark', viewport: { width: 1280, height: 900 } },
  phone: { colorScheme: 'light', viewport: { width: 390, height: 740 }, isMobile: true },
  small: { colorScheme: 'dark', viewport: { width: 320, height: 600 }, isMobile: true },
} as const

/** Accessibility violations that axe-core finds. */
async function obstacles(page: Page): Promise<string[]> {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'))
  // axe waits by the page's clock, which stands still in tests.
  await page.clock.resume()
  return page.evaluate<string[]>(
    "axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => id + ' ' + target + ' ' + failureSummary)))",
  )
}

const visibleText = (page: Page) => page.evaluate<string>('document.body.innerText')

/** Sends requests: so many good ones, and some of each kind that is refused. */
async function traffic({ port, token, mint }: TestSidecar, good: number) {
  const get = async (headers: Record<string, string>) =>
    (await fetch(`http://127.0.0.1:${port}/object`, { headers })).arrayBuffer()
  const bearer = (value: string) => ({ authorization: `Bearer ${value}` })
  for (let i = 0; i < good; i++) {
    await get(bearer(token))
  }
  await get({})
  await get({})
  await get(bearer('a.b'))
  await get(bearer(await mint({ header: { kid: 'unknown' } })))
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

if (NO_BROWSER) {
  t.plan(0, NO_BROWSER)
  process.exit()
}
const browser = await startBrowser(t)

t.test('the page in a browser', async (t) => {
  const upstream = await recordingUpstream(t)
  upstream.reply('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
  const url = `http://127.0.0.1:${sidecar.adminPort}/`
  const { page, complaints } = await openPage(browser, url, LOOKS.light)
  /** Runs the page's clock until the next refresh; returns the status that it received. */
  const refreshed = async () => {
    const [response] = await Promise.all([page.waitForResponse('**/status.json'), page.clock.runFor(5000)])
    const status = (await response.json()) as StatusDocument
    await page.locator(`#updated time[datetime="${status.time}"]`).waitFor()
    return status
  }

  await t.test('shows what status.json says, and refreshes itself', async (t) => {
    t.equal(await page.title(), `✓ Ready · ${hostname()} · Storage auth sidecar`)
    t.match(await visibleText(page), /Ready\s+✓\s*keys ok\s+✓\s*credentials ok\s+✓\s*accepting ok/)
    await traffic(sidecar, 30)
    const status = await refreshed()
    t.match(status, {
      requests: { count: 35, byStatus: { 200: 30, 400: 5 } },
      rejections: { count: 5 },
      keys: [{ kid: sidecar.key.kid, ageSeconds: Number }],
      upstreams: [{ prefix: '/', state: 'ok', count: 30, failed: 0 }],
    })
    for (const [reason, count] of Object.entries(status.rejections.byReason)) {
      if (count > 0) {
        t.equal((await cells(page, 'rejections', reason)).at(-1), String(count), reason)
      }
    }
    t.match(await cells(page, 'upstreams', '/'), [/ok$/, '30', /^0/])
    t.match(await cells(page, 'keys', sidecar.key.kid), [/signs$/])
    t.match(await visibleText(page), `Updated ${status.time.slice(11, 19)} UTC`)
    await eventually(async () => {
      await refreshed()
      return (await page.locator('.chart canvas').count()) === 3
    }, 'the charts')
  })

  await t.test('violates no content security policy and loads nothing from other origins', async (t) => {
    t.strictSame(complaints, [])
  })

  await t.test('shows a failing upstream in headline and title', async (t) => {
    await upstream.close()
    // It takes a sample since the last good response.
    await eventually(async () => {
      await traffic(sidecar, 3)
      return (await refreshed()).upstreams[0]?.state === 'failing'
    }, 'a failing upstream')
    const { upstreams } = await refreshed()
    t.match(upstreams, [{ failed: Number, lastFault: { outcome: 'connection_refused' } }])
    t.match(
      await page.title(),
      /^✕ Upstream "\/" fails: connection_refused, last \d+ s ago · \S+ · Storage auth sidecar$/,
    )
    t.match(await page.locator('.verdict').innerText(), 'Upstream "/" fails')
    t.match(await visibleText(page), /failing\s+\d+ failed in \d+ s\s+connection_refused, last \d+ s ago/)
  })

  await t.test('shows that the sidecar is unreachable, and since when', async (t) => {
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

t.test('shows a banner in report mode', async (t) => {
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:1',
    settings: { enforcement: 'report' },
  })
  const { page } = await openPage(browser, `http://127.0.0.1:${sidecar.adminPort}/`, LOOKS.light)
  await page.getByText('this sidecar protects nothing yet').waitFor()
  t.equal(
    await page.title(),
    `! Report mode: refused tokens are forwarded · ${hostname()} · Storage auth sidecar`,
  )
})

t.test('the page in incidents: nothing is too wide, and no words stick together', async (t) => {
  const sidecar = await startSidecar(t, { upstreamUrl: 'http://127.0.0.1:9' })
  for (const [incident, what] of Object.entries(INCIDENTS)) {
    const status = withoutThisMachine(await statusIn(what))
    t.equal(status.problems[0]?.severity, 'critical', incident)
    for (const name of ['light', 'small'] as const) {
      const look = LOOKS[name]
      const { page, complaints } = await openPage(
        browser,
        `http://127.0.0.1:${sidecar.adminPort}/`,
        look,
        (route) => route.fulfill({ json: status }),
      )
      await page.locator('.verdict').waitFor()
      t.match(await page.locator('.verdict').innerText(), status.problems[0]?.text, incident)
      const wide = await page.evaluate<number>('document.documentElement.scrollWidth')
      t.ok(wide <= look.viewport.width, `${incident}, ${name}: ${wide} pixels wide`)
      t.strictSame(await overlong(page), [], `${incident}, ${name}: no text leaves its cell`)
      t.strictSame(complaints, [])
      if (SCREENSHOTS_OF_INCIDENTS !== undefined) {
        const file = `${incident.replaceAll(' ', '-')}-${name}.png`
        await page.screenshot({ path: `${SCREENSHOTS_OF_INCIDENTS}/${file}`, fullPage: true })
      }
      await page.close()
    }
  }
})

t.test('what is suspect, or of an earlier moment, has no mark of a good state', async (t) => {
  const sidecar = await startSidecar(t, { upstreamUrl: 'http://127.0.0.1:9' })
  const open = async (incident: string) => {
    const json = await statusIn(INCIDENTS[incident] ?? { act() {} })
    const answer = (route: Route) => route.fulfill({ json })
    const { page } = await openPage(browser, `http://127.0.0.1:${sidecar.adminPort}/`, LOOKS.light, answer)
    await page.locator('.verdict').waitFor()
    return page
  }
  const emptied = await open('the credentials file was emptied')
  t.match(await cells(emptied, 'trust', 'credentials'), [/suspect/, /ago/])
  t.match(await emptied.locator('#trust .facts').innerText(), /0 active, from a file/)
  const down = await open('the database is down')
  t.match(await down.locator('.checks .mark.warn').innerText(), /credentials/)
})

t.test('the page after ten busy minutes', async (t) => {
  const setup = await tenBusyMinutes()
  const status = withoutThisMachine(await setup.report())
  const admin = createAdminListener({
    config: {
      admin: { host: '127.0.0.1', port: 0 },
      name: '',
      upstreams: [],
      credentials: { file: undefined, postgres: undefined },
      cache: { maxTokens: 1, maxAgeSeconds: 1 },
    },
    adminData: {
      conditions: () => [],
      jwks: () => ({}),
      signingKid: () => 'k1',
      metrics: setup.read,
      accounts: () => ({ requests: [], bytes: [], refusals: [] }),
    },
    rooms: [],
    secureContext: undefined,
    log: { error: (error: unknown) => t.error(error) },
    now: Date.now,
  })
  const { port } = await admin.listen()
  t.teardown(() => admin.close())

  for (const [name, look] of Object.entries(LOOKS)) {
    await t.test(`${name}: no horizontal scrolling, and axe finds no violation`, async (t) => {
      const { page, complaints } = await openPage(browser, `http://127.0.0.1:${port}/`, look, (route) =>
        route.fulfill({ json: status }),
      )
      await page.locator('.verdict').waitFor()
      const wide = await page.evaluate<number>('document.documentElement.scrollWidth')
      t.ok(wide <= look.viewport.width, `${wide} pixels wide`)
      t.strictSame(await overlong(page), [], 'no text leaves its cell')
      const text = await visibleText(page)
      for (const words of ['The newest revocations', 'Latency', 'unknown_key', 'rotation-2026-11']) {
        t.match(text, words)
      }
      t.strictSame(await obstacles(page), [])
      t.strictSame(complaints, [])
      if (SCREENSHOTS !== undefined && name !== 'small') {
        mkdirSync(SCREENSHOTS, { recursive: true })
        await page.screenshot({ path: `${SCREENSHOTS}/status-page-${name}.png`, fullPage: true })
      }
    })
  }

  await t.test('in an outage the title is the most severe problem, and nothing scrolls', async (t) => {
    const prefix = `/${'archive-'.repeat(12)}`
    const address = `https://${'storage.'.repeat(20)}example`
    const outcome = 'destination_ip_unroutable'
    const upstream = { ...status.upstreams[0], prefix, address, state: 'failing' }
    const upstreams = [{ ...upstream, lastFault: { outcome, secondsAgo: 0 } }]
    for (const [mark, severity, text] of [
      ['✕', 'critical', `Upstream ${prefix} fails: ${outcome}`],
      ['!', 'warning', 'Draining: 3 requests in flight'],
    ]) {
      const title = `${mark} ${text}`
      const json = { ...status, upstreams, problems: [{ severity, text }, ...status.problems] }
      const answer = (route: Route) => route.fulfill({ json })
      const { page } = await openPage(browser, `http://127.0.0.1:${port}/`, LOOKS.small, answer)
      await page.locator('.verdict').waitFor()
      t.ok((await page.title()).startsWith(title), title)
      t.equal(await page.evaluate('document.documentElement.scrollWidth'), 320, title)
      t.strictSame(await overlong(page), [], title)
    }
  })
})

/** Replaces what depends on the machine that runs the test. */
function withoutThisMachine<S extends StatusDocument>(status: S): S {
  return {
    ...status,
    node: 'v24.22.1',
    uptimeSeconds: 600,
    process: { ...status.process, rssBytes: 71_300_000, cpuRatio: 0.043 },
  }
}

/** The texts of elements that are wider than they may be. */
function overlong(page: Page): Promise<string[]> {
  return page.evaluate(
    "[...document.querySelectorAll('section, td, tbody th, dd, li, p')].filter((e) => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.slice(0, 60))",
  )
}
