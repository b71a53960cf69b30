import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer as createRawServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { requestText, writeRequests } from '../../bench/lab/requests.ts'
import { type Answer, openConnection } from '../../bench/load/connection.ts'

/** Serves raw answers, in pieces; resolves with the port. */
async function rawServer(t: Test, pieces: readonly string[], end = false): Promise<number> {
  const server = createRawServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', async () => {
      for (const piece of pieces) {
        socket.write(piece)
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
      if (end) socket.end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return (server.address() as AddressInfo).port
}

/** Asks a number of times over one client connection. */
async function ask(t: Test, port: number, times = 1): Promise<(Answer | undefined)[]> {
  const connection = openConnection(port)
  t.teardown(() => connection.close())
  const answers: (Answer | undefined)[] = []
  for (let time = 0; time < times; time++) {
    answers.push(await new Promise((resolve) => connection.ask(requestText({}), resolve)))
  }
  return answers
}

t.test('an answer is counted to its last byte, however it is cut into pieces', async (t) => {
  const pieces = ['HTTP/1.1 200 OK\r\nContent-', 'Length: 5\r\n\r', '\nab', 'cde']
  const port = await rawServer(t, pieces)
  const answer = { status: 200, bytes: pieces.join('').length }
  t.strictSame(await ask(t, port, 2), [answer, answer])
})

t.test('a connection that the answer closes is opened again', async (t) => {
  const text = 'HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'
  const port = await rawServer(t, [text], true)
  t.strictSame(
    (await ask(t, port, 3)).map((answer) => answer?.status),
    [403, 403, 403],
  )
})

t.test('an answer that is cut off, or does not say how long it is, is none', async (t) => {
  const endless = await rawServer(t, ['HTTP/1.1 200 OK\r\n\r\nab'])
  t.strictSame(await ask(t, endless), [undefined])
  const port = await rawServer(t, ['HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab'], true)
  t.strictSame(await ask(t, port), [undefined])
})

t.test('requests are what a server understands', async (t) => {
  const seen: unknown[] = []
  const server = createServer((req, res) => {
    let body = ''
    req.on('data', (part) => {
      body += part
    })
    req.on('end', () => {
      seen.push([req.method, req.url, req.headers.authorization, req.headers.connection, body])
      res.end('ok')
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const connection = openConnection((server.address() as AddressInfo).port)
  t.teardown(() => connection.close())
  const login = { method: 'POST', path: '/v2/auth/token', body: '{"é":1}' }
  for (const options of [{ token: 'abc' }, { close: true }, login]) {
    await new Promise((resolve) =>
      connection.ask(Buffer.from(requestText(options)).toString('latin1'), resolve),
    )
  }
  t.strictSame(seen, [
    ['GET', '/bucket/object', 'Bearer abc', undefined, ''],
    ['GET', '/bucket/object', undefined, 'close', ''],
    ['POST', '/v2/auth/token', undefined, undefined, '{"é":1}'],
  ])
})

t.test('requests are written once, and their order beside them', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'bench-test-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  t.match(writeRequests({ directory }, 'a', ['x', 'y']), { expect: 'forwarded', orderFile: undefined })
  t.match(writeRequests({ directory }, 'b', ['x'], { order: [0, 0], expect: 'refused' }), {
    expect: 'refused',
    orderFile: join(directory, 'b.order'),
  })
})
