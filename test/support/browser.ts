/** A real browser, where the machine has one: Debian's Chromium, driven over its debugging protocol. */
import { existsSync } from 'node:fs'
import type { Browser, BrowserContextOptions, Route } from 'playwright-core'
import type { Test } from 'tap'

const EXECUTABLE = process.env['CHROMIUM'] ?? '/usr/bin/chromium'

/** Why tests in a browser are left out; false where they are not. */
export const NO_BROWSER: string | false = existsSync(EXECUTABLE) ? false : `there is no ${EXECUTABLE}`

/** Quiet: nothing of its own over the network, and as root in a container. */
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-lcd-text', // grey edges of letters: pictures are smaller, and look the same everywhere
]

/** Starts a browser with a profile of its own; it ends with the test. */
export async function startBrowser(t: Pick<Test, 'teardown'>): Promise<Browser> {
  // Loaded here, so that tests of other things never wait for it.
  const { chromium } = await import('playwright-core')
  const browser = await chromium.launch({ executablePath: EXECUTABLE, args: ARGUMENTS })
  t.teardown(() => browser.close())
  return browser
}

/** Opens a page and collects its errors. `answerStatus`: responds to its requests for status.json. */
export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
  answerStatus?: (route: Route) => Promise<void>,
) {
  const context = await browser.newContext(options)
  const page = await context.newPage()
  await page.clock.install()
  /**
   * Errors and warnings on the console, exceptions, violations of the policy, requests that leave the origin.
   */
  const complaints: string[] = []
  page.on('console', (message) => {
    if (message.type() !== 'log') {
      complaints.push(`${message.type()}: ${message.text()}`)
    }
  })
  page.on('pageerror', (error) => {
    complaints.push(`exception: ${error.message}`)
  })
  page.on('request', (request) => {
    const asked = request.url()
    if (!asked.startsWith('data:') && new URL(asked).origin !== new URL(url).origin) {
      complaints.push(`request: ${asked}`)
    }
  })
  // As text: what runs in the page is not of this program, nor are its types.
  await page.addInitScript(
    "addEventListener('securitypolicyviolation', (event) => console.error('policy: ' + event.violatedDirective))",
  )
  if (answerStatus !== undefined) {
    await page.route('**/status.json', answerStatus)
  }
  await page.goto(url)
  await page.waitForLoadState('networkidle')
  return { page, complaints }
}
