import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { rawClient } from '../support/raw-client.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'

/** A client whose first request is not answered before `release`, and an upstream that answers others at once. */
async function behindASlowRequest(t: Test, reply: string) {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url })
  let slow: Socket | undefined
  upstream.reply((socket, { target }) => {
    if (target === '/slow') slow = socket
    else socket.write(reply)
  })
  const client = await rawClient(t, sidecar.port)
  const head = `Host: s\r\nAuthorization: Bearer ${sidecar.token}\r\n`
  client.send(`GET /slow HTTP/1.1\r\n${head}\r\n`)
  await upstream.received(1)
  return { client, upstream, sidecar, head, release: () => slow?.write(OK) }
}

t.test('early hints to a request whose turn it is not stay out of its body', async (t) => {
  const hints = 'HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n'
  const reply = `${hints}HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nbody`
  const { client, upstream, head, release } = await behindASlowRequest(t, reply)
  client.send(`GET /hinted HTTP/1.1\r\n${head}\r\nGET /after HTTP/1.1\r\n${head}\r\n`)
  await upstream.received(3)
  release()
  t.equal((await client.response()).body.toString(), 'ok')
  for (const _ of ['hinted', 'after']) {
    const response = await client.response()
    t.equal(response.status, 201)
    t.equal(response.body.toString(), 'body')
  }
})

t.test('a client that waits behind a slow request is told to go on when it is its turn', async (t) => {
  const { client, upstream, head, release } = await behindASlowRequest(t, OK)
  client.send(`PUT /waits HTTP/1.1\r\n${head}Expect: 100-continue\r\nContent-Length: 4\r\n\r\n`)
  await upstream.until(
    () => upstream.bytes.some((bytes) => bytes.includes('PUT /waits')),
    'the head of the upload',
  )
  t.equal(client.received().length, 0)
  release()
  t.equal((await client.response()).status, 200)
  t.equal((await client.response()).status, 100)
  client.send('body')
  t.equal((await client.response()).body.toString(), 'ok')
  t.equal(upstream.requests[1]?.body.toString(), 'body')
})

t.test('a client that does not wait behind a slow request is told nothing but its answer', async (t) => {
  const { client, sidecar, head, release } = await behindASlowRequest(t, OK)
  client.send(`PUT /hurries HTTP/1.1\r\n${head}Expect: 100-continue\r\nContent-Length: 4\r\n\r\nbody`)
  const answered = 'auth_sidecar_upstream_requests_total{upstream="/",outcome="ok"}'
  while ((await sidecar.metric(answered)) < 1) await new Promise((resolve) => setTimeout(resolve, 5))
  release()
  for (const _ of ['slow', 'hurries']) {
    const response = await client.response()
    t.equal(response.status, 200)
    t.equal(response.body.toString(), 'ok')
  }
})
