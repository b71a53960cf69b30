import t from 'tap'
import { startScene } from '../support/scene.ts'

// `\xc4\x8d\xc4\x8a` are two letters in UTF-8 whose code points end in CR and LF.
const VALUES = ['\xe4\xff\xc3\xa4', '\xc4\x8d\xc4\x8aX-Injected: 1']

t.test('bytes above ASCII in a response header arrive as they were, however the body comes', async (t) => {
  const scene = await startScene(t)
  for (const [when, framing, body] of [
    ['with the head', 'Content-Length: 2', 'ok'],
    ['later', 'Content-Length: 2', ''],
    ['later, in chunks', 'Transfer-Encoding: chunked', ''],
    ['later, ended by the close', 'Connection: close', ''],
    ['not at all', 'Content-Length: 0', ''],
  ] as const) {
    // Node decodes Content-Disposition as UTF-8 where a length is known.
    for (const name of ['X-Bytes', 'Content-Disposition', 'content-disposition']) {
      for (const value of VALUES) {
        for (const lines of [`${name}: ${value}\r\n${framing}`, `${framing}\r\n${name}: ${value}`]) {
          scene.upstream.reply(`HTTP/1.1 200 OK\r\n${lines}\r\n\r\n${body}`)
          const client = await scene.request('GET /a')
          await client.until('\r\n\r\n')
          const line = Buffer.from(`\r\n${name}: ${value}\r\n`, 'latin1')
          t.ok(client.received().includes(line), `${name}, the body comes ${when}`)
          client.socket.destroy()
        }
      }
    }
  }
  await scene.recovers()
})
