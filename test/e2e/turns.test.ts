import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { startSetup } from '../support/setup.ts'
import { startSidecar } from '../support/sidecar.ts'

/** More than the 1,024 sockets of which libuv reads all before a turn of the event loop ends. */
const STRANGERS = 1500
const FROM_STRANGER = 'GET /stranger HTTP/1.1\r\nHost: storage.example\r\n\r\n'

/** Sends the text on all connections when `signal[0]` is changed, then changes `signal[1]`. */
const CLIENTS = `
const { connect } = require('node:net')
const { parentPort, workerData: { port, count, text, signal } } = require('node:worker_threads')
const sockets = Array.from({ length: count }, () => connect(port, '127.0.0.1').resume())
const connected = sockets.map((socket) => new Promise((resolve) => socket.once('connect', resolve)))
function sendAll(round) {
  Atomics.wait(signal, 0, round)
  const sent = sockets.map((socket) => new Promise((resolve) => socket.write(text, resolve)))
  Promise.all(sent).then(() => {
    Atomics.add(signal, 1, 1)
    Atomics.notify(signal, 1)
    setImmediate(sendAll, round + 1)
  })
}
Promise.all(connected).then(() => {
  parentPort.postMessage('connected')
  setImmediate(sendAll, 0)
})
`

/** Each sends the text again as soon as it has a response. */
const ENDLESS_CLIENTS = `
const { connect } = require('node:net')
const { workerData: { port, count, text } } = require('node:worker_threads')
for (let at = 0; at < count; at++) {
  const socket = connect(port, '127.0.0.1', () => socket.write(text))
  socket.on('data', () => socket.write(text))
}
`

/**
 * Connects clients of another thread.
 * Returns a function that blocks this thread until all of them have sent a request.
 */
async function strangersAt(t: Test, port: number): Promise<() => void> {
  const signal = new Int32Array(new SharedArrayBuffer(8))
  const workerData = { port, count: STRANGERS, text: FROM_STRANGER, signal }
  const worker = new Worker(CLIENTS, { eval: true, workerData })
  t.teardown(() => worker.terminate())
  await new Promise((resolve) => worker.once('message', resolve))
  let round = 0
  return () => {
    Atomics.add(signal, 0, 1)
    Atomics.notify(signal, 0)
    Atomics.wait(signal, 1, round)
    round++
  }
}

/** Counts what Node's server reports of requests for a path. */
function countRequests(t: Test, event: 'request.start' | 'response.finish', path: string): () => number {
  let count = 0
  const onEvent = (message: unknown) => {
    const { request } = message as { readonly request: IncomingMessage }
    count += request.url === path ? 1 : 0
  }
  const channel = `http.server.${event}`
  subscribe(channel, onEvent)
  t.teardown(() => {
    unsubscribe(channel, onEvent)
  })
  return () => count
}

const countResponses = (t: Test, path: string) => countRequests(t, 'response.finish', path)

/** Returns a function that returns by how much `count` has grown at most in one turn of the event loop. */
function watchTurns(t: Test, count: () => number) {
  let before = count()
  let most = 0
  let isWatching = true
  const onTurn = () => {
    most = Math.max(most, count() - before)
    before = count()
    if (isWatching) {
      setImmediate(onTurn)
    }
  }
  setImmediate(onTurn)
  t.teardown(() => {
    isWatching = false
  })
  return () => most
}

t.test('requests of many clients at once are served over many turns of the event loop', async (t) => {
  const { sidecar, connect, head } = await startSetup(t)
  const refused = countResponses(t, '/stranger')
  const most = watchTurns(t, refused)
  const allSend = await strangersAt(t, sidecar.port)

  allSend()
  await eventually(() => refused() === STRANGERS, 'all strangers to be refused')
  t.ok(most() <= 100, `${most()} in one turn`)

  const client = await connect()
  client.send(head('GET /good'))
  allSend()
  t.equal((await client.response()).status, 200)
  t.ok(refused() < STRANGERS + STRANGERS / 2, `beside ${refused() - STRANGERS} that had been refused before`)
  await eventually(() => refused() === 2 * STRANGERS, 'the refused ones have their turns, too')
})

t.test('while many clients wait for their turn, the next request of a client is not read', async (t) => {
  const { sidecar } = await startSetup(t)
  const read = countRequests(t, 'request.start', '/stranger')
  const refused = countResponses(t, '/stranger')
  const workerData = { port: sidecar.port, count: STRANGERS, text: FROM_STRANGER }
  const worker = new Worker(ENDLESS_CLIENTS, { eval: true, workerData })
  t.teardown(() => worker.terminate())
  await eventually(() => refused() > 5 * STRANGERS, 'each client to have had some responses')
  const waiting = read() - refused()
  t.ok(waiting < STRANGERS / 10, `${waiting} of ${STRANGERS} are read and wait`)
})

const DOWNLOADS = 200
const MIB = 1024 * 1024

/** Responds to each connection, without end. */
const ENDLESS_UPSTREAM = `
const { createServer } = require('node:net')
const { parentPort } = require('node:worker_threads')
const block = Buffer.alloc(1 << 20)
const server = createServer((socket) => {
  const send = () => {
    while (socket.writable && socket.write(block)) {}
  }
  socket.on('error', () => {})
  socket.on('drain', send)
  socket.once('data', () => {
    socket.write('HTTP/1.1 200 OK\\r\\nContent-Length: 1000000000000\\r\\n\\r\\n')
    send()
  })
})
server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))
`

/** Each sends the text once, and reads all that it receives. */
const READING_CLIENTS = `
const { connect } = require('node:net')
const { workerData: { port, count, text } } = require('node:worker_threads')
for (let at = 0; at < count; at++) {
  const socket = connect(port, '127.0.0.1', () => socket.write(text))
  socket.on('error', () => {})
  socket.resume()
}
`

/** Counts the bytes that all clients with a request are sent. */
function countSentBytes(t: Test): () => number {
  const sockets = new Set<Socket>()
  const onRequest = (message: unknown) => {
    const { request } = message as { readonly request: IncomingMessage }
    sockets.add(request.socket)
  }
  subscribe('http.server.request.start', onRequest)
  t.teardown(() => {
    unsubscribe('http.server.request.start', onRequest)
  })
  return () => {
    let bytes = 0
    for (const socket of sockets) {
      bytes += socket.bytesWritten
    }
    return bytes
  }
}

t.test('many large downloads move few bytes in one turn of the event loop', async (t) => {
  const upstream = new Worker(ENDLESS_UPSTREAM, { eval: true })
  t.teardown(() => upstream.terminate())
  const upstreamPort = await new Promise((resolve) => upstream.once('message', resolve))
  const sidecar = await startSidecar(t, {
    upstreamUrl: `http://127.0.0.1:${upstreamPort}`,
    settings: { 'limits-account-share': '1', 'shutdown-deadline-seconds': '0' },
  })
  const sentBytes = countSentBytes(t)
  const lines = `Host: storage.example\r\nAuthorization: Bearer ${sidecar.token}\r\n`
  const text = `GET /object HTTP/1.1\r\n${lines}\r\n`
  const workerData = { port: sidecar.port, count: DOWNLOADS, text }
  const clients = new Worker(READING_CLIENTS, { eval: true, workerData })
  t.teardown(() => clients.terminate())

  const most = watchTurns(t, sentBytes)
  await eventually(() => sentBytes() > 400 * MIB, 'enough bytes to be sent')
  const mostMib = most() / MIB
  t.ok(mostMib < 15, `${mostMib.toFixed(1)} MiB in one turn`)
})
