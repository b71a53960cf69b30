import { createHash } from 'node:crypto'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { HEADERS, renderPage, SCRIPT } from '../../src/status-page/page.ts'
import { statusScene } from '../support/status-scene.ts'

const page = async () => renderPage(await statusScene().reporter.report())
const sha256 = (text = '') => `'sha256-${createHash('sha256').update(text).digest('base64')}'`

t.test('the policy lets the script and the style of the page pass, and nothing else', async (t) => {
  const html = await page()
  const [, script] = /<script[^>]*>(.*?)<\/script>/s.exec(html) ?? []
  const [, style] = /<style>(.*?)<\/style>/s.exec(html) ?? []
  const policy = HEADERS['Content-Security-Policy']?.split('; ') ?? []
  t.ok(policy.includes("default-src 'none'"))
  t.ok(policy.includes(`script-src ${sha256(script)}`))
  t.ok(policy.includes(`style-src ${sha256(style)}`))
  t.ok(policy.includes("frame-ancestors 'none'"))
  t.equal(html.match(/<script/g)?.length, 1)
  t.notMatch(html, / on[a-z]+=/, 'no handlers in attributes')
  t.notMatch(html, / style=/, 'no style in attributes')
})

t.test('the page names no other place', async (t) => {
  const html = (await page())
    .replaceAll('http://www.w3.org/2000/svg', '')
    .replace('http://127.0.0.1:9000', '')
  t.notMatch(html, /https?:\/\//)
})

t.test('the script is whole: it renders by itself what the sidecar rendered', async (t) => {
  const status = await statusScene().reporter.report()
  const { renderParts } = await import('../../src/status-page/parts.ts')
  const context = { console, status, keepFresh: undefined, out: undefined as unknown }
  // Without the last line, which needs a browser.
  runInNewContext(`${SCRIPT.replace('keepFresh(globalThis)', '')};out = renderParts(status)`, context)
  t.strictSame(JSON.parse(JSON.stringify(context.out)), renderParts(status))
})
