/** A browser app of another origin, in Chromium: it logs in, stores an object and reads refusals. */
import { createServer } from 'node:http'
import t from 'tap'
import { NO_BROWSER, startBrowser } from '../support/browser.ts'
import { listen } from '../support/listen.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'

t.test('only a page of an allowed origin can use the API', { skip: NO_BROWSER }, async (t) => {
  const pages = createServer((_req, res) => res.setHeader('Content-Type', 'text/html').end('<p>app</p>'))
  const port = await listen(t, pages)
  const app = `http://localhost:${port}`
  const stranger = `http://127.0.0.1:${port}`

  const upstream = await recordingUpstream(t)
  const cors = `Access-Control-Allow-Origin: ${app}\r\nVary: Origin\r\n`
  const preflight = `${cors}Access-Control-Allow-Methods: GET, PUT\r\nAccess-Control-Allow-Headers: authorization\r\n`
  let stored = ''
  upstream.reply((socket, { method, body }) => {
    if (method === 'PUT') {
      stored = body.toString()
    }
    const content = method === 'GET' ? stored : ''
    const lines = method === 'OPTIONS' ? preflight : cors
    socket.write(`HTTP/1.1 200 OK\r\n${lines}Content-Length: ${content.length}\r\n\r\n${content}`)
  })
  const sidecar = await startSidecar(t, {
    upstreamUrl: upstream.url,
    settings: { 'cors-allowed-origins': app, 'cors-preflight': 'pass' },
  })
  const twoHoursAgo = Date.now() - 7_200_000
  const expired = await sidecar.mint({ now: twoHoursAgo, lifetimeSeconds: 3600 })
  const login = JSON.stringify(sidecar.logins[0])

  // As text: it runs in the page, where the types of this program are not.
  const script = `(async () => {
    const url = 'http://127.0.0.1:${sidecar.port}'
    const json = { 'Content-Type': 'application/json' }
    const body = JSON.stringify(${login})
    const loggedIn = await fetch(url + '/v2/auth/token', { method: 'POST', headers: json, body })
    const { token } = await loggedIn.json()
    const headers = { Authorization: 'Bearer ' + token }
    const { expirationSec } = await (await fetch(url + '/v2/auth/token', { headers })).json()
    const put = await fetch(url + '/bucket/object', { method: 'PUT', headers, body: 'content' })
    const object = await (await fetch(url + '/bucket/object', { headers })).text()
    const refused = await fetch(url + '/bucket/object', { headers: { Authorization: 'Bearer ${expired}' } })
    return {
      expirationSec,
      put: put.status,
      object,
      refused: { status: refused.status, ...(await refused.json()) },
      requestId: refused.headers.get('x-request-id'),
      proxyStatus: refused.headers.get('proxy-status'),
    }
  })()`
  const browser = await startBrowser(t)
  const page = await browser.newPage()
  await page.goto(app)
  t.match(await page.evaluate(script), {
    expirationSec: Number,
    put: 200,
    object: 'content',
    refused: { status: 400, code: 'ExpiredToken', message: 'Token expired.' },
    requestId: /^[\w-]{36}$/,
    proxyStatus: /details="expired"/,
  })
  await page.goto(stranger)
  await t.rejects(page.evaluate(script), /Failed to fetch/)
})
