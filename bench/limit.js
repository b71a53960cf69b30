/**
 * The limit of the sidecar's design: Node's HTTP server with the smallest upstream client that works,
 * and no checks: `node limit.js PORT UPSTREAM-PORT`.
 * A response needs `Content-Length`; bodies of requests are not forwarded.
 */
import { createServer } from 'node:http'
import { connect } from 'node:net'

const [port, upstreamPort] = process.argv.slice(2).map(Number)
const idle = []
/** Of one connection, not of the other. */
const CONNECTION = /^connection/i

function open() {
  const socket = connect(upstreamPort, '127.0.0.1')
  socket.setNoDelay(true)
  const upstream = { socket, res: undefined, received: '' }
  socket.on('data', (chunk) => onData(upstream, chunk.latin1Slice()))
  socket.on('close', () => idle.includes(upstream) && idle.splice(idle.indexOf(upstream), 1))
  return upstream
}

function onData(upstream, text) {
  const received = upstream.received + text
  const headEnd = received.indexOf('\r\n\r\n')
  const [statusLine, ...lines] = headEnd < 0 ? [''] : received.slice(0, headEnd).split('\r\n')
  const headers = lines.flatMap((line) => {
    if (CONNECTION.test(line)) {
      return []
    }
    const colon = line.indexOf(':')
    return [line.slice(0, colon), line.slice(colon + 2)]
  })
  const length = Number(headers[headers.findIndex((text) => text.toLowerCase() === 'content-length') + 1])
  upstream.received = received
  if (headEnd < 0 || received.length < headEnd + 4 + length) {
    return
  }
  upstream.received = ''
  upstream.res.writeHead(Number(statusLine.slice(9, 12)), statusLine.slice(13), headers)
  upstream.res.end(received.slice(headEnd + 4), 'latin1')
  idle.push(upstream)
}

const server = createServer((req, res) => {
  let head = `${req.method} ${req.url} HTTP/1.1\r\n`
  for (let at = 0; at < req.rawHeaders.length; at += 2) {
    if (!CONNECTION.test(req.rawHeaders[at])) {
      head += `${req.rawHeaders[at]}: ${req.rawHeaders[at + 1]}\r\n`
    }
  }
  const upstream = idle.pop() ?? open()
  upstream.res = res
  upstream.socket.write(`${head}\r\n`, 'latin1')
})
server.keepAliveTimeout = 75_000
server.listen(port, '127.0.0.1', 4096)
