import t from 'tap'
import { rawClient } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { startSetup } from '../support/setup.ts'

t.test('informational responses are not taken for the final response', async (t) => {
  const { upstream, sidecar, head, recovers } = await startSetup(t)
  const client = await rawClient(t, sidecar.port)
  for (const [what, before] of [
    ['100', 'HTTP/1.1 100 Continue\r\n\r\n'],
    ['102', 'HTTP/1.1 102 Processing\r\n\r\n'],
    [
      '102 twice, and 100',
      'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n',
    ],
    ['an unknown one with headers', 'HTTP/1.1 199 Hm\r\nContent-Length: 5\r\nX-A: b\r\n\r\n'],
    ['103 without links', 'HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n'],
  ] as const) {
    await t.test(what, async (t) => {
      for (const together of [true, false]) {
        upstream.reply((socket) => {
          socket.write(together ? before + OK : before)
          if (!together) setTimeout(() => socket.write(OK), 20)
        })
        client.send(head('GET /'))
        const response = await client.response()
        t.equal(response.status, 200)
        t.equal(response.body.toString(), 'ok')
      }
      t.equal(client.rest().length, 0)
    })
  }
  t.equal(upstream.sockets.length, 1, 'and the connection is used again')
  await recovers()
})

t.test('early hints are forwarded with their links at once', async (t) => {
  const { upstream, request, recovers } = await startSetup(t)
  let go = () => {}
  upstream.reply((socket) => {
    socket.write(
      'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Other: no\r\nlink: </b.js>; rel=preload\r\n\r\n',
    )
    go = () => void socket.write(OK)
  })
  const client = await request('GET /')
  const hints = await client.response()
  t.equal(hints.status, 103)
  t.equal(hints.headers['link'], '</a.css>; rel=preload, </b.js>; rel=preload')
  t.equal(hints.headers['x-other'], undefined)
  go()
  t.equal((await client.response()).status, 200)
  await recovers()
})

t.test('an HTTP/1.0 client gets no informational response', async (t) => {
  const { upstream, authorization, recovers, ask } = await startSetup(t)
  upstream.reply(`HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n${OK}`)
  t.equal((await ask(`GET / HTTP/1.0\r\n${authorization}\r\n`)).status, 200)
  await recovers()
})
