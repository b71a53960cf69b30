import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { type IncomingHttpHeaders, request } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startObjectStore } from '../../src/demo/start-object-store.ts'
import { eventually } from '../support/eventually.ts'

const NOON = Date.parse('2031-05-06T12:00:00Z')

interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
}

/** A storage API on a fresh directory, and one request to it, by account `a` where no other is named. */
async function objectStore(t: Test, directory = t.testdir()) {
  const faults: unknown[] = []
  const options = { directory, now: () => NOON, onFault: (fault: unknown) => faults.push(fault) }
  const { address, port, close } = await startObjectStore(options)
  t.teardown(close)
  const call = (method: string, path: string, headers: Record<string, string> = {}, body = '') =>
    new Promise<Answer>((resolve, reject) => {
      const sent = { 'X-Authenticated-Account-Id': 'a', ...headers }
      request({ host: address, port, method, path, headers: sent, agent: false }, async (response) => {
        const body = Buffer.concat(await response.toArray())
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body })
      })
        .on('error', reject)
        .end(body)
    })
  return { directory, port, call, faults }
}

const json = ({ body }: Answer) => JSON.parse(body.toString())
const sha256 = (text: string) => `"${createHash('sha256').update(text).digest('hex')}"`
const filesBelow = (directory: string) =>
  readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())

t.test('listens on loopback, and keeps everything where only its owner looks', async (t) => {
  const { directory, call } = await objectStore(t, join(t.testdir(), 'objects'))
  await call('PUT', '/k', {}, 'text')
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const mode = statSync(join(entry.parentPath, entry.name)).mode & 0o777
    t.equal(mode, entry.isFile() ? 0o600 : 0o700, entry.name.length > 20 ? 'a digest' : entry.name)
  }
  t.equal(statSync(directory).mode & 0o777, 0o700)
})

t.test('gives an object back as it was put, with its type, entity tag and time', async (t) => {
  const { call } = await objectStore(t)
  const put = await call('PUT', '/photos/cat.txt', { 'Content-Type': 'text/plain' }, 'a cat')
  t.equal(put.status, 201)
  t.equal(put.headers.etag, sha256('a cat'))
  t.strictSame(json(put), {
    key: '/photos/cat.txt',
    size: 5,
    etag: sha256('a cat'),
    contentType: 'text/plain',
    lastModified: '2031-05-06T12:00:00.000Z',
  })
  const got = await call('GET', '/photos/cat.txt?any=query')
  t.equal(got.status, 200)
  t.equal(got.body.toString(), 'a cat')
  t.match(got.headers, {
    'content-type': 'text/plain',
    'content-length': '5',
    etag: sha256('a cat'),
    'last-modified': 'Tue, 06 May 2031 12:00:00 GMT',
    'accept-ranges': 'bytes',
  })
  const head = await call('HEAD', '/photos/cat.txt')
  t.equal(head.status, 200)
  t.equal(head.headers['content-length'], '5')
  t.equal(head.body.length, 0)
})

t.test('replaces an object, and takes an empty one', async (t) => {
  const { call } = await objectStore(t)
  await call('PUT', '/k', {}, 'first')
  t.equal((await call('PUT', '/k', {}, '')).status, 200)
  const got = await call('GET', '/k')
  t.equal(got.status, 200)
  t.equal(got.headers['content-type'], 'application/octet-stream')
  t.equal(got.headers['content-length'], '0')
  t.equal(got.body.length, 0)
})

t.test('removes an object, once', async (t) => {
  const { directory, call } = await objectStore(t)
  await call('PUT', '/k', {}, 'text')
  const removed = await call('DELETE', '/k')
  t.equal(removed.status, 204)
  t.equal(removed.body.length, 0)
  for (const method of ['DELETE', 'GET']) {
    const again = await call(method, '/k')
    t.equal(again.status, 404)
    t.equal(json(again).code, 'NoSuchObject')
  }
  t.equal((await call('HEAD', '/k')).status, 404)
  t.strictSame(filesBelow(directory), [])
})

t.test('takes keys that differ in one byte for different objects, inside the directory', async (t) => {
  const outer = t.testdir({ objects: {} })
  const { call } = await objectStore(t, join(outer, 'objects'))
  const keys = [
    '/a/b',
    '/a//b',
    '//a/b',
    '/a%2Fb',
    '/a%2fb',
    '/a/./b',
    '/x/../a/b',
    '/../../a/b',
    '/a/b/',
    '/A/b',
    '/%00',
  ]
  for (const key of keys) t.equal((await call('PUT', key, {}, key)).status, 201, key)
  for (const key of keys) t.equal((await call('GET', key)).body.toString(), key, key)
  const listed = json(await call('GET', '/')).objects.map(({ key }: { key: string }) => key)
  t.strictSame(listed, [...keys].sort())
  t.strictSame(readdirSync(outer), ['objects'])
})

t.test('keeps accounts apart', async (t) => {
  const { call } = await objectStore(t)
  await call('PUT', '/k', {}, 'of a')
  t.equal((await call('GET', '/k', { 'X-Authenticated-Account-Id': 'b' })).status, 404)
  t.equal((await call('DELETE', '/k', { 'X-Authenticated-Account-Id': 'b' })).status, 404)
  t.strictSame(json(await call('GET', '/', { 'X-Authenticated-Account-Id': 'b' })), { objects: [] })
  t.equal((await call('GET', '/k')).body.toString(), 'of a')
})

t.test('lists the keys that begin with a prefix', async (t) => {
  const { call } = await objectStore(t)
  for (const key of ['/b/2', '/a/1', '/b/1']) await call('PUT', key, {}, key)
  const keys = async (path: string) =>
    json(await call('GET', path)).objects.map(({ key }: { key: string }) => key)
  t.strictSame(await keys('/?prefix=/b/'), ['/b/1', '/b/2'])
  t.strictSame(await keys('/?prefix=%2Fa'), ['/a/1'])
  t.strictSame(await keys('/?prefix=/c'), [])
  const head = await call('HEAD', '/')
  t.equal(head.status, 200)
  t.equal(head.body.length, 0)
})

t.test('sends one range', async (t) => {
  const { call } = await objectStore(t)
  await call('PUT', '/k', {}, '0123456789')
  const part = await call('GET', '/k', { Range: 'bytes=2-4' })
  t.equal(part.status, 206)
  t.equal(part.body.toString(), '234')
  t.equal(part.headers['content-range'], 'bytes 2-4/10')
  t.equal(part.headers['content-length'], '3')
  const outside = await call('GET', '/k', { Range: 'bytes=10-' })
  t.equal(outside.status, 416)
  t.equal(outside.headers['content-range'], 'bytes */10')
  t.equal(json(outside).code, 'InvalidRange')
  t.equal((await call('HEAD', '/k', { Range: 'bytes=2-4' })).status, 200, 'a range is for GET')
})

t.test('sends a range of the version it was asked of, and else the whole', async (t) => {
  const { call } = await objectStore(t)
  await call('PUT', '/k', {}, '0123456789')
  t.equal((await call('GET', '/k', { Range: 'bytes=2-4', 'If-Range': sha256('0123456789') })).status, 206)
  t.equal((await call('GET', '/k', { Range: 'bytes=2-4', 'If-Range': sha256('older') })).status, 200)
})

t.test('answers 304 to a client that holds the object', async (t) => {
  const { call } = await objectStore(t)
  await call('PUT', '/k', {}, 'text')
  for (const held of [sha256('text'), `"x", W/${sha256('text')}`, '*']) {
    const answer = await call('GET', '/k', { 'If-None-Match': held })
    t.equal(answer.status, 304)
    t.equal(answer.headers.etag, sha256('text'))
    t.equal(answer.body.length, 0)
  }
  t.equal((await call('GET', '/k', { 'If-None-Match': '"x"' })).status, 200)
})

t.test('serves nobody who did not come through the sidecar', async (t) => {
  const { directory, port, call } = await objectStore(t)
  await call('PUT', '/k', {}, 'text')
  for (const identity of ['', 'X-Authenticated-Account-Id: a\r\nX-Authenticated-Account-Id: b\r\n']) {
    const socket = connect(port, '127.0.0.1')
    socket.write(`GET /k HTTP/1.1\r\nHost: h\r\n${identity}Connection: close\r\n\r\n`)
    const answer = Buffer.concat(await socket.toArray()).toString()
    t.match(answer, /^HTTP\/1\.1 403 /)
    t.match(answer, '"code":"NotAuthenticated"')
  }
  t.equal(filesBelow(directory).length, 1)
})

t.test('says which methods it knows', async (t) => {
  const { call } = await objectStore(t)
  const post = await call('POST', '/k')
  t.equal(post.status, 405)
  t.equal(post.headers.allow, 'GET, HEAD, PUT, DELETE')
  t.equal(json(post).code, 'MethodNotAllowed')
  const put = await call('PUT', '/?prefix=a', {}, 'text')
  t.equal(put.status, 405)
  t.equal(put.headers.allow, 'GET, HEAD')
})

t.test('keeps nothing of an upload that breaks off, and the older object stays', async (t) => {
  const { directory, port, call, faults } = await objectStore(t)
  await call('PUT', '/k', {}, 'older')
  const socket = connect(port, '127.0.0.1')
  socket.write('PUT /k HTTP/1.1\r\nHost: h\r\nX-Authenticated-Account-Id: a\r\nContent-Length: 9\r\n\r\nhalf')
  const uploads = join(directory, 'uploads')
  await eventually(() => readdirSync(uploads).length === 1, 'the upload')
  socket.destroy()
  await eventually(() => readdirSync(uploads).length === 0, 'its removal')
  t.equal((await call('GET', '/k')).body.toString(), 'older')
  t.strictSame(faults, [])
})

t.test('lists what is left when an object is removed meanwhile', async (t) => {
  const { directory, call } = await objectStore(t)
  await call('PUT', '/k', {}, 'text')
  const account = join(directory, 'accounts', createHash('sha256').update('a').digest('hex'))
  symlinkSync('gone', join(account, '0'.repeat(64))) // in the directory, and not there when it is opened
  t.equal(json(await call('GET', '/')).objects.length, 1)
})

t.test('sweeps out what a killed process left of its uploads', async (t) => {
  const directory = t.testdir({ uploads: { left: 'half' } })
  await objectStore(t, directory)
  t.strictSame(readdirSync(join(directory, 'uploads')), [])
})

t.test('a download that its client leaves is no fault', async (t) => {
  const { port, call, faults } = await objectStore(t)
  await call('PUT', '/k', {}, 'x'.repeat(8 * 1024 * 1024))
  const socket = connect(port, '127.0.0.1')
  socket.write('GET /k HTTP/1.1\r\nHost: h\r\nX-Authenticated-Account-Id: a\r\n\r\n')
  await once(socket, 'data')
  socket.destroy()
  t.equal((await call('GET', '/k')).body.length, 8 * 1024 * 1024)
  t.strictSame(faults, [])
})

t.test('answers a fault of the disk with 500, says nothing of it, and keeps no part', async (t) => {
  const { directory, call, faults } = await objectStore(t)
  const account = join(directory, 'accounts', createHash('sha256').update('a').digest('hex'))
  mkdirSync(join(account, createHash('sha256').update('/k').digest('hex'), 'x'), { recursive: true })
  for (const [method, body] of [
    ['GET', ''],
    ['PUT', 'x'.repeat(300_000)],
  ] as const) {
    const answer = await call(method, '/k', {}, body)
    t.equal(answer.status, 500, method)
    t.strictSame(json(answer), {
      code: 'InternalError',
      message: 'The storage API failed. Retry the request.',
    })
  }
  t.equal(faults.length, 2)
  t.strictSame(readdirSync(join(directory, 'uploads')), [])
})

t.test('cuts the connection when the disk fails after the response head', async (t) => {
  const { directory, port, call, faults } = await objectStore(t)
  await call('PUT', '/k', {}, 'text')
  const [stored] = filesBelow(directory)
  const file = await open(join(stored?.parentPath ?? '', stored?.name ?? ''))
  const fileHandle = Object.getPrototypeOf(file)
  await file.close()
  const { read } = fileHandle
  let reads = 0 // two for the metadata, then the bytes
  t.intercept(fileHandle, 'read', {
    value(...args: unknown[]) {
      return ++reads < 3
        ? read.apply(this, args)
        : Promise.reject(Object.assign(new Error(), { code: 'EIO' }))
    },
  })
  const socket = connect(port, '127.0.0.1')
  socket.write('GET /k HTTP/1.1\r\nHost: h\r\nX-Authenticated-Account-Id: a\r\n\r\n')
  t.notMatch(Buffer.concat(await socket.toArray()).toString(), 'text')
  t.match(faults, [{ code: 'EIO' }])
})

t.test('goes on without anybody to tell of faults', async (t) => {
  const directory = t.testdir()
  const { address, port, close } = await startObjectStore({ directory })
  t.teardown(close)
  writeFileSync(join(directory, 'accounts'), 'in the way')
  const headers = { 'X-Authenticated-Account-Id': 'a' }
  t.equal((await fetch(`http://${address}:${port}/`, { headers })).status, 500)
})

t.test('does not start where it cannot listen', async (t) => {
  const { port } = await objectStore(t)
  await t.rejects(startObjectStore({ directory: t.testdir(), port }), { code: 'EADDRINUSE' })
})
