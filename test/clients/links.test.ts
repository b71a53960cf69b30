/**
 * Programs of users open links: download managers that resume, a browser that seeks, and
 * a transfer whose link ends.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, get } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { NO_BROWSER, startBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { listen } from '../support/listen.ts'
import { NO_SERVER } from '../support/opened-database.ts'
import { without } from '../support/other-programs.ts'
import { databaseSetup, startPostgres } from '../support/postgres.ts'
import { serve } from '../support/program.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { mintToken } from '../support/tokens.ts'

const MB = 1_000_000

/** Forty minutes of a quiet sound, and a file like any other. */
const WAV = Buffer.alloc(20 * MB, 0x80)
WAV.write(`RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data`, 'latin1')
WAV.writeUInt32LE(WAV.length - 8, 4)
WAV.writeUInt32LE(WAV.length - 44, 40)

/** A storage service with one object, which it serves by ranges, and the ranges it was asked for. */
async function storage(t: Test, content: Buffer) {
  const seen: { target: string; range: string | undefined }[] = []
  const uploads: Buffer[] = []
  const server = createServer(async (req, res) => {
    const { method, url: target = '', headers } = req
    seen.push({ target, range: headers.range })
    if (method === 'PUT') {
      uploads.push(Buffer.concat(await req.toArray()))
      return res.writeHead(201).end()
    }
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(headers.range ?? '') ?? []
    const from = Number(first ?? 0)
    const to = Number(last || content.length - 1)
    res.setHeader('Accept-Ranges', 'bytes').setHeader('ETag', '"e"').setHeader('Content-Type', 'audio/wav')
    res.setHeader('Content-Range', `bytes ${from}-${to}/${content.length}`)
    res.setHeader('Content-Length', to + 1 - from)
    res.writeHead(first === undefined ? 200 : 206)
    return res.end(method === 'HEAD' ? undefined : content.subarray(from, to + 1))
  })
  return { seen, uploads, url: `http://127.0.0.1:${await listen(t, server)}` }
}

async function setUp(t: Test, method: string, target: string) {
  const upstream = await storage(t, WAV)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, settings: { 'links-enabled': 'true' } })
  const { url } = await sidecarClient(sidecar).link(sidecar.token, method, target)
  return { upstream, url: `http://127.0.0.1:${sidecar.port}${url}` }
}

const PUT = 'u.urlopen(u.Request(sys.argv[1], open("file", "rb").read(), method="PUT"))'

/** `resumes`: half of the file is there. */
const CLIENTS: readonly (readonly [how: 'whole' | 'resumes' | 'in parts' | 'uploads', command: string])[] = [
  ['whole', 'curl -fsS -o file "$URL"'],
  ['resumes', 'curl -fsS -C - -o file "$URL"'],
  ['uploads', 'curl -fsS -T file "$URL"'],
  ['resumes', 'wget -q -c -O file "$URL"'],
  ['resumes', 'aria2c -q -c -o file "$URL"'],
  ['in parts', 'aria2c -q -x4 -s4 -k1M -o file "$URL"'],
  ['whole', 'rclone --config /dev/null copyurl "$URL" file'],
  ['whole', `python3 -c 'import sys, urllib.request as u; u.urlretrieve(sys.argv[1], "file")' "$URL"`],
  ['uploads', `python3 -c 'import sys, urllib.request as u; ${PUT}' "$URL"`],
]

for (const [how, command] of CLIENTS) {
  const [program = ''] = command.split(' ')
  t.test(`${program}: ${how}`, { skip: without(program) }, async (t) => {
    const target = '/media/long%20name.wav?v=1'
    const { upstream, url } = await setUp(t, how === 'uploads' ? 'PUT' : 'GET', target)
    const cwd = t.testdir({})
    const file = join(cwd, 'file')
    if (how === 'uploads') {
      writeFileSync(file, WAV)
    }
    if (how === 'resumes') {
      writeFileSync(file, WAV.subarray(0, WAV.length / 2))
    }
    const env = { ...process.env, NODE_OPTIONS: '', URL: url }
    const child = spawn('sh', ['-c', command], { cwd, env, stdio: ['ignore', 'ignore', 'inherit'] })
    t.same(await once(child, 'exit'), [0, null])
    t.ok((how === 'uploads' ? upstream.uploads[0] : readFileSync(file))?.equals(WAV), 'all bytes')
    t.ok(upstream.seen.every((request) => request.target === target))
    const ranges = upstream.seen.filter(({ range }) => range !== undefined && !range.startsWith('bytes=0-'))
    t.equal(ranges.length > 0, how === 'resumes' || how === 'in parts')
  })
}

const browser = NO_BROWSER ? undefined : await startBrowser(t)

/** Opens a page of an origin that is not the sidecar's. */
async function openPage(t: Test, html: string) {
  if (browser === undefined) {
    throw new Error(`${NO_BROWSER}`)
  }
  const pages = createServer((_, res) => res.end(html))
  const page = await browser.newPage()
  await page.goto(`http://127.0.0.1:${await listen(t, pages)}/`)
  return page
}

t.test('a video element seeks', { skip: NO_BROWSER }, async (t) => {
  const { upstream, url } = await setUp(t, 'GET', '/media/film.wav')
  const page = await openPage(t, '<!doctype html><video preload="metadata"></video>')
  // As text: it runs in the page.
  const script = `new Promise((resolve, reject) => {
    const video = document.querySelector('video')
    video.onerror = () => reject(new Error(video.error.message))
    video.onloadedmetadata = () => { video.currentTime = video.duration * 0.9 }
    video.onseeked = () => resolve([video.duration, video.currentTime])
    video.src = ${JSON.stringify(url)}
  })`
  const [duration = 0, time = 0] = await page.evaluate<number[]>(script)
  t.match([Math.round(duration), Math.round(time)], [2500, 2250])
  const offsets = upstream.seen.map(({ range }) => Number(/\d+/.exec(range ?? '0')))
  t.ok(Math.max(...offsets) > WAV.length / 2, `asked for ${offsets.join()}`)
})

/** What clients encode each in their own way, if the link leaves it as it is. */
const ODD_TARGETS = [
  `/media/it's {1}.wav?v=it's {1}`,
  '/media/"a"|b^c`d.wav?v="a"|b^c`d',
  '/media/[1]<2>\\3?v=[1]<2>',
]

t.test(
  'a browser and curl send an odd target as it is bound',
  { skip: NO_BROWSER || without('curl') },
  async (t) => {
    const page = await openPage(t, '<!doctype html>')
    for (const odd of ODD_TARGETS) {
      const { upstream, url } = await setUp(t, 'GET', odd.replaceAll(' ', '%20'))
      // As text: it runs in the page.
      await page.evaluate(`fetch(${JSON.stringify(url)}, { mode: 'no-cors' }).then(() => {})`)
      const child = spawn('curl', ['-fsS', '-o', '/dev/null', url], { stdio: 'inherit' })
      t.same(await once(child, 'exit'), [0, null], odd)
      t.equal(upstream.seen.length, 2, 'both arrived')
      for (const { target } of upstream.seen) {
        t.equal(decodeURIComponent(target), odd)
      }
    }
  },
)

const server = await startPostgres(t)
t.test('a download outlives its link', { skip: !server && NO_SERVER }, async (t) => {
  if (server === undefined) {
    return
  }
  const name = { accountId: 'a', accessKey: 'k' }
  const { key, ...setup } = await databaseSetup(t, server.createDatabase, [name], 'a secret')
  const { url: upstreamUrl } = await storage(t, Buffer.alloc(40 * MB, 'x'))
  const links = { 'links-enabled': 'true', 'scopes-hosts': '*' }
  const flags = { ...setup.flags, 'upstream-url': upstreamUrl, ...links }
  const here = await serve(t, flags)
  const there = await serve(t, flags)
  const token = await mintToken({ key, claims: { sub: 'a', client_id: 'k' } })
  const { url, linkId } = await sidecarClient(here).link(token, 'GET', '/large')
  const [download] = await once(get(`http://127.0.0.1:${here.port}${url}`), 'response')
  download.pause()
  const end = { method: 'DELETE', headers: { Authorization: `Bearer ${token}` } }
  t.equal((await fetch(`http://127.0.0.1:${there.port}/v2/auth/links/${linkId}`, end)).status, 204)
  for (const { port } of [here, there]) {
    const again = `http://127.0.0.1:${port}${url}`
    await eventually(async () => (await fetch(again, { method: 'HEAD' })).status === 400, 'the refusal')
  }
  t.equal(Buffer.concat(await download.toArray()).length, 40 * MB)
})
