import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { startSetup } from '../support/setup.ts'
import { DECLINES_UPGRADES, HANDSHAKE } from '../support/websocket.ts'

/** A request that must never be taken for one: it comes inside the body of another. */
const inner = (target: string) =>
  `GET ${target} HTTP/1.1\r\nHost: h\r\nX-Authenticated-Account-Id: victim\r\n\r\n`

const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`

t.test('a body stays one body with any method, framing and connection', async (t) => {
  const setup = await startSetup(t)
  const body = inner('/smuggled')
  const inOneChunk = (coding: string) => `Transfer-Encoding: ${coding}\r\n\r\n${chunk(body)}0\r\n\r\n`
  const framings = [
    `Content-Length: ${body.length}\r\n\r\n${body}`,
    inOneChunk('chunked'),
    inOneChunk('Chunked'),
    inOneChunk('CHUNKED'),
  ]
  for (const method of ['DELETE', 'OPTIONS', 'GET', 'HEAD', 'PUT', 'POST', 'PATCH', 'PROPFIND', 'LOCK']) {
    for (const connection of ['', 'Connection: close\r\n', 'Connection: keep-alive\r\n']) {
      for (const framing of framings) {
        const bytes = `${method} /outer HTTP/1.1\r\nHost: h\r\n${setup.authorization}${connection}${framing}`
        const response = await setup.ask(bytes, { head: method === 'HEAD' })
        const [request] = setup.upstream.requests
        const what = `${method} ${connection.trim()} ${framing.slice(0, 30)}`
        t.equal(response.status, 200, what)
        t.equal(setup.upstream.requests.length, 1, what)
        t.equal(request?.method, method, what)
        t.equal(request?.body.toString(), body, what)
        const { 'content-length': length, 'transfer-encoding': coding } = request?.headers ?? {}
        t.equal([length, coding].filter((value) => value !== undefined).length, 1, 'one framing')
        await setup.upstreamSaw(t, 1)
      }
    }
  }
})

/** Lines that some parser somewhere takes for `Transfer-Encoding: chunked`. */
function transferEncodingLines(): string[] {
  const names = (
    'Transfer-Encoding|transfer-encoding|TRANSFER-ENCODING|Transfer_Encoding|Transfer.Encoding|' +
    'Transfer-Encoding |Transfer-Encoding\t| Transfer-Encoding|\tTransfer-Encoding|' +
    ' \tTransfer-Encoding|Transfer-Encoding\x00|\x00Transfer-Encoding|Transfer-Encoding\x0b|' +
    '\x0bTransfer-Encoding|X: y\nTransfer-Encoding|X: y\rTransfer-Encoding|' +
    'X: y\r\n Transfer-Encoding|X: \r\nTransfer-Encoding|"Transfer-Encoding"|Transfer Encoding|' +
    'TransferEncoding|Transfer-Encoding-|-Transfer-Encoding|_Transfer_Encoding|Transfer-Encoding_|' +
    'Transfer-\r\n Encoding|Transfer\xadEncoding|Transfer-Enc\xf6ding|Transfer--Encoding|' +
    'Transfer-Encoding\x7f|Transfer-Encoding\xa0|\xefTransfer-Encoding|:Transfer-Encoding'
  ).split('|')
  const separators = ':|: |:  |:\t|: \t |:\x0b|:\x0c|:\x00|:\r\n |:\r\n\t|:\n | : |::|: :|=| '.split('|')
  const values = (
    'chunked|Chunked|CHUNKED|chunKed|chunked |chunked\t|chunked \t |chunked\x0b|\x0bchunked|' +
    'chunked\x0c|\x0cchunked|chunked\x00|\x00chunked|chun\x00ked|chunked\r|\rchunked|chunked\r\r|' +
    '"chunked"|\'chunked\'|"chunked|chunked"|chunked;|chunked;q=1|chunked; foo=bar|;chunked|' +
    'chunked,|,chunked|, chunked|chunked, chunked|chunked,identity|chunked, identity|' +
    'identity,chunked|identity, chunked|gzip, chunked|chunked, gzip|deflate|gzip|identity|' +
    'compress|| |\t|xchunked|chunkedx|chunke|hunked|chun ked|chun\r\n ked|chunked\r\n |' +
    'chunked\r\n\t|\r\n chunked|chunked\nX: y|chunked\rX: y|c\xe8unked|chunked\x7f|chunked\x80|' +
    '\xa0chunked|chunked\xa0|\x85chunked|true|none|x|\\chunked|[chunked]|(chunked)|chunked/1.0|' +
    'chunked=1|chunked:1|cow|trailers|chunked chunked|x, chunked|chunked, cow|%63hunked|' +
    'chunk\xc4\xb1d|0'
  ).split('|')
  const repeated = ['chunked', 'Chunked', 'identity', 'gzip', 'cow', ''].flatMap((first, _, all) =>
    all.map((second) => `Transfer-Encoding: ${first}\r\nTransfer-Encoding: ${second}`),
  )
  return [
    ...names.flatMap((name) => [`${name}: chunked`, `${name}: identity`, `${name}:chunked`]),
    ...separators.flatMap((separator) => values.map((value) => `Transfer-Encoding${separator}${value}`)),
    ...repeated,
    ...repeated.map((lines) => lines.replaceAll('\r\n', '\r\nX: y\r\n')),
  ]
}

t.test('no spelling of Transfer-Encoding with a Content-Length splits a request', async (t) => {
  const setup = await startSetup(t)
  const lines = transferEncodingLines()
  t.ok(lines.length > 500, `${lines.length} lines`)
  const heads = lines.flatMap((line) => [
    (length: number) => `Content-Length: ${length}\r\n${line}\r\n`,
    (length: number) => `${line}\r\nContent-Length: ${length}\r\n`,
  ])
  const statuses: number[] = []
  const tryOne = async (at: number) => {
    const head = heads[at]
    if (head === undefined) {
      return
    }
    const body = `0\r\n\r\n${inner(`/smuggled/${at}`)}`
    const response = await setup.ask(
      `POST /outer/${at} HTTP/1.1\r\nHost: h\r\n${setup.authorization}${head(body.length)}\r\n${body}`,
    )
    statuses[at] = response.status
    if (response.status === 400) {
      isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, `case ${at}`)
    }
  }
  for (let at = 0; at < heads.length; at += 8) {
    await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map((offset) => tryOne(at + offset)))
  }
  const seen = new Map<string, number>()
  for (const { target, headers, rawHeaders } of setup.upstream.requests) {
    seen.set(target, (seen.get(target) ?? 0) + 1)
    const encoding = rawHeaders.filter(
      (name, at) => at % 2 === 0 && /^[-_.]*transfer[-_.]encoding[-_.]*$/i.test(name),
    )
    t.equal(
      headers['content-length'] !== undefined && encoding.length > 0,
      false,
      `${target} has one framing`,
    )
  }
  t.same(
    [...seen].filter(([target, count]) => count > 1 || target.startsWith('/smuggled')),
    [],
  )
  t.same(
    statuses.filter((status) => status !== 200 && status !== 400),
    [],
    'forwarded once or refused',
  )
  const plain = lines.indexOf('Transfer-Encoding: chunked') * 2
  t.same([statuses[plain], statuses[plain + 1]], [400, 400], 'two ways to tell the length are refused')
  await setup.upstreamSaw(t, statuses.filter((status) => status === 200).length)
})

t.test('a Transfer-Encoding alone is "chunked" in any letter case, or refused', async (t) => {
  const setup = await startSetup(t)
  for (const coding of ['chunked', 'Chunked', 'cHUNKED']) {
    const head = setup.head('PUT /o', `Transfer-Encoding: ${coding}`)
    t.equal((await setup.ask(`${head}${chunk('abc')}0\r\n\r\n`)).status, 200, coding)
    t.equal(setup.upstream.requests[0]?.body.toString(), 'abc', coding)
    await setup.upstreamSaw(t, 1)
  }
  for (const value of [
    'gzip, chunked',
    'chunked, identity',
    'chunked, chunked',
    'chunked,',
    ',chunked',
    'identity',
    'chunked;q=1',
    '',
    '\x0bchunked',
    'xchunked',
    'chunked\r\nTransfer-Encoding: chunked',
    'identity\r\nTransfer-Encoding: chunked',
  ]) {
    const head = setup.head('PUT /o', `Transfer-Encoding: ${value}`)
    const response = await setup.ask(`${head}${chunk('abc')}0\r\n\r\n`)
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, JSON.stringify(value))
  }
  const old = await setup.ask(
    `PUT /o HTTP/1.0\r\nHost: h\r\n${setup.authorization}Transfer-Encoding: chunked\r\n\r\n${chunk('abc')}0\r\n\r\n`,
  )
  isOwnResponse(t, old, { status: 400, code: 'InvalidArgument' }, 'HTTP/1.0 knows no chunks')
  await setup.upstreamSaw(t, 0)
})

t.test('a Content-Length is one plain decimal number, or refused', async (t) => {
  const setup = await startSetup(t)
  for (const value of [
    '+5',
    '-0',
    '-5',
    '0x5',
    '5,5',
    '5, 5',
    '05',
    '00',
    '5a',
    '5;',
    'five',
    '1_000',
    '1000000000000000',
    '5.0',
    '5e0',
    '5 5',
    '',
    '"5"',
    '\xb25',
    '99999999999999999999',
    '18446744073709551621',
    '5\r\nContent-Length: 5',
    '5\r\nContent-Length: 6',
    '5\r\nContent_Length: 5',
    '5\r\nContent-Length : 5',
  ]) {
    const response = await setup.ask(
      `PUT /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}Content-Length: ${value}\r\n\r\nhello`,
    )
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, JSON.stringify(value))
  }
  await setup.upstreamSaw(t, 0)
  for (const value of ['5 ', '  5', '  5  ']) {
    const response = await setup.ask(
      `PUT /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}Content-Length:${value}\r\n\r\nhello`,
    )
    t.equal(response.status, 200, 'white space around it is no part of it')
    t.equal(setup.upstream.requests[0]?.headers['content-length'], '5')
    await setup.upstreamSaw(t, 1)
  }
})

t.test('a header line that parsers could split differently is refused', async (t) => {
  const setup = await startSetup(t)
  for (const line of [
    'X: a\r\n b',
    'X: a\r\n\tb',
    ' X: a',
    'X : a',
    'X\t: a',
    ': a',
    ' : a',
    'X',
    'X a',
    'X\x00: a',
    'X: a\x00b',
    'X: a\rb',
    'X\ry: a',
    'X\ny: a',
    'X: a\nY: b',
    'X\x7f: a',
    'X: a\x7f',
    'X: a\x01',
    'X\xe4: a',
    '\x80: a',
    'X(y): a',
    'X"y": a',
    'X/y: a',
    'X[y]: a',
    'Content_Length: 5',
    'content.length: 5',
    'Transfer_Encoding: chunked',
    'TRANSFER_ENCODING: chunked',
    'Authorization_: Bearer x',
    '_Authorization: Bearer x',
    'Host_: evil',
  ]) {
    const response = await setup.ask(setup.head('GET /o', line))
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, JSON.stringify(line))
  }
  await setup.upstreamSaw(t, 0)
})

t.test('header lines that end without a carriage return are refused', async (t) => {
  const setup = await startSetup(t)
  for (const request of [
    `GET /o HTTP/1.1\nHost: h\r\n${setup.authorization}\r\n`,
    `GET /o HTTP/1.1\r\nHost: h\n${setup.authorization}\r\n`,
    `GET /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}\n\n`,
    `GET /o HTTP/1.1\nHost: h\n${setup.authorization.trim()}\n\n`,
    `GET /o HTTP/1.1\rHost: h\r${setup.authorization.trim()}\r\r`,
  ]) {
    const response = await setup.ask(`${request}\r\n\r\n`)
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, JSON.stringify(request.slice(0, 40)))
  }
  await setup.upstreamSaw(t, 0)
})

t.test('a malformed chunk aborts the upload, and no complete request reaches the upstream', async (t) => {
  const setup = await startSetup(t)
  for (const [name, chunks] of [
    ['a size in C notation', '0x5\r\nhello\r\n0\r\n\r\n'],
    ['a size with a sign', '+5\r\nhello\r\n0\r\n\r\n'],
    ['a negative size', '-5\r\nhello\r\n0\r\n\r\n'],
    ['a size with a space in front', ' 5\r\nhello\r\n0\r\n\r\n'],
    ['a size with a space after it', '5 \r\nhello\r\n0\r\n\r\n'],
    ['a size with a tab after it', '5\t\r\nhello\r\n0\r\n\r\n'],
    ['a bare carriage return in an extension', '5;a\rb\r\nhello\r\n0\r\n\r\n'],
    ['a size beyond 64 bits', 'fffffffffffffffff\r\nhello\r\n0\r\n\r\n'],
    ['no size', '\r\nhello\r\n0\r\n\r\n'],
    ['a size that is a word', 'five\r\nhello\r\n0\r\n\r\n'],
    ['a bare line feed after the size', '5\nhello\r\n0\r\n\r\n'],
    ['a bare carriage return after the size', '5\rhello\r\n0\r\n\r\n'],
    ['a bare line feed after the data', '5\r\nhello\n0\r\n\r\n'],
    ['nothing after the data', '5\r\nhello0\r\n\r\n'],
    ['too much data', '5\r\nhello!\r\n0\r\n\r\n'],
    ['an extension of 64 KiB', `5;${'x'.repeat(65536)}\r\nhello\r\n0\r\n\r\n`],
    ['a line feed in an extension', '5;a\nb\r\nhello\r\n0\r\n\r\n'],
    ['a NUL in an extension', '5;a\x00b\r\nhello\r\n0\r\n\r\n'],
    ['a trailer that is no field', '5\r\nhello\r\n0\r\nno field\r\n\r\n'],
    ['a trailer folded', '5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n'],
    ['trailers beyond any bound', `5\r\nhello\r\n0\r\nX: ${'x'.repeat(65536)}\r\n\r\n`],
    ['a bare line feed at the end', '5\r\nhello\r\n0\r\n\n'],
  ] as const) {
    const client = await setup.send(
      `PUT /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}Transfer-Encoding: chunked\r\n\r\n${chunks}`,
    )
    const response = await client.response()
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, name)
    client.socket.end()
    t.equal(await client.closed(), 'end', `${name}: closed after the response`)
    t.equal(client.rest().length, 0)
    await setup.upstream.until(() => setup.upstream.open() === 0, 'the malformed upload to be aborted')
    await setup.upstreamSaw(t, 0)
    for (const socket of setup.upstream.sockets) {
      socket.destroy()
    }
  }
  const { upstream, authorization, sidecar } = setup
  const labels = 'upstream="/",outcome="client_malformed"'
  const malformed = () => sidecar.metric(`auth_sidecar_upstream_requests_total{${labels}}`)
  const before = await malformed()
  const late = await setup.send(
    `PUT /o HTTP/1.1\r\nHost: h\r\n${authorization}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`,
  )
  await upstream.until(() => upstream.bytes.at(-1)?.includes('hello') === true, 'the first chunk')
  late.send('five\r\n')
  isOwnResponse(t, await late.response(), { status: 400, code: 'InvalidArgument' }, 'in the middle')
  t.equal(await malformed(), before + 1)
})

t.test('chunk extensions are not forwarded; sizes may have leading zeros', async (t) => {
  const setup = await startSetup(t)
  const chunks = '0000000005;name=value\r\nhello\r\n0;last\r\nX-Check: 1\r\n\r\n'
  t.equal((await setup.ask(setup.head('PUT /o', 'Transfer-Encoding: chunked') + chunks)).status, 200)
  t.equal(setup.upstream.requests[0]?.body.toString(), 'hello')
  t.same(setup.upstream.requests[0]?.rawTrailers, ['X-Check', '1'])
  t.notMatch(setup.upstream.bytes[0]?.toString('latin1'), 'name=value')
  await setup.upstreamSaw(t, 1)
})

t.test('too many header lines do not hide the framing', async (t) => {
  const setup = await startSetup(t)
  for (const lines of [201, 999, 1001, 1500, 2500]) {
    const client = await setup.send(
      setup.head('POST /many', ...Array(lines).fill('a:b'), 'Transfer-Encoding: chunked') +
        `0\r\n\r\n${inner('/smuggled')}`,
    )
    isOwnResponse(t, await client.response(), { status: 431, code: 'InvalidArgument' }, `${lines} lines`)
    await client.closed()
    t.equal(client.rest().length, 0, 'and no further response')
  }
  await setup.upstreamSaw(t, 0)
})

t.test('with larger limits, framing headers after 1,500 lines are obeyed', async (t) => {
  const setup = await startSetup(t, {
    settings: { 'limits-header-lines': '3000', 'limits-header-bytes': '65536' },
  })
  const body = inner('/smuggled')
  const lines = [...Array(1500).fill(`a:${'b'.repeat(20)}`), 'Transfer-Encoding: chunked']
  t.equal((await setup.ask(`${setup.head('POST /many', ...lines)}${chunk(body)}0\r\n\r\n`)).status, 200)
  t.equal(setup.upstream.requests[0]?.body.toString(), body)
  t.equal(setup.upstream.requests[0]?.rawHeaders.filter((name) => name === 'a').length, 1500)
  await setup.upstreamSaw(t, 1)
})

t.test('bytes after a body are parsed as the next request, and refused', async (t) => {
  const setup = await startSetup(t)
  for (const method of ['GET', 'PUT', 'DELETE']) {
    for (const body of [
      'Content-Length: 5\r\n\r\nhello',
      `Transfer-Encoding: chunked\r\n\r\n${chunk('hello')}0\r\n\r\n`,
    ]) {
      for (const extra of ['X', '\x00', '}', '0\r\n\r\n', '5\r\nhello\r\n0\r\n\r\n']) {
        const client = await setup.send(
          `${method} /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}${body}${extra}\r\n\r\n`,
        )
        t.equal((await client.response()).status, 200, `${method}: the request itself is answered`)
        isOwnResponse(
          t,
          await client.response(),
          { status: 400, code: 'InvalidArgument' },
          JSON.stringify(extra),
        )
        t.equal(await client.closed(), 'end')
        t.equal(setup.upstream.requests[0]?.body.toString(), 'hello')
        await setup.upstreamSaw(t, 1)
      }
    }
  }
})

t.test('a framing or identity header listed in Connection is refused, not removed', async (t) => {
  const setup = await startSetup(t)
  for (const nominated of [
    'content-length',
    'Content-Length, close',
    'transfer-encoding',
    'host',
    'authorization',
    'close, x-authenticated-account-id',
    'X_Authenticated_Account_Id',
    'content_length',
    'transfer.encoding',
    'authorization_',
    'x-authenticated-',
    'HOST,close',
    ',\thost ,',
    'close\r\nConnection: host',
  ]) {
    const response = await setup.ask(
      `DELETE /o HTTP/1.1\r\nHost: h\r\n${setup.authorization}Connection: ${nominated}\r\nContent-Length: 5\r\n\r\nhello`,
    )
    isOwnResponse(t, response, { status: 400, code: 'InvalidArgument' }, nominated)
  }
  await setup.upstreamSaw(t, 0)
})

/** The first bytes of a TLS handshake, as a client sends them that was given the wrong port. */
const CLIENT_HELLO = Buffer.from(
  '16030100c8010000c40303000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0000021301',
  'hex',
)

t.test('bytes that are not HTTP/1.x get a JSON response and the connection is closed', async (t) => {
  const setup = await startSetup(t)
  for (const [name, bytes] of [
    ['a TLS handshake', CLIENT_HELLO],
    ['SSH', 'SSH-2.0-OpenSSH_9.7\r\n'],
    ['SMTP', 'EHLO example\r\n'],
    ['SOCKS', Buffer.from('05010000', 'hex')],
    ['the PROXY protocol', 'PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n'],
    ['NULs', Buffer.alloc(64)],
    ['bytes beyond ASCII', Buffer.alloc(64, 0xff)],
    ['a response', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'],
    ['HTTP/0.9', 'GET /b/k\r\n\r\n'],
    ['HTTP/0.9 by name', 'GET /b/k HTTP/0.9\r\nHost: h\r\n\r\n'],
    ['HTTP/1.2', 'GET /b/k HTTP/1.2\r\nHost: h\r\n\r\n'],
    ['HTTP/1.10', 'GET /b/k HTTP/1.10\r\nHost: h\r\n\r\n'],
    ['HTTP/2.0', 'GET /b/k HTTP/2.0\r\nHost: h\r\n\r\n'],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0'],
    ['HTTP/3', 'GET /b/k HTTP/3\r\nHost: h\r\n\r\n'],
    ['http/1.1', 'GET /b/k http/1.1\r\nHost: h\r\n\r\n'],
    ['another protocol', 'GET /b/k FTP/1.0\r\n\r\n'],
    ['no version', 'GET /b/k HTTP/\r\n\r\n'],
    ['text after the version', 'GET /b/k HTTP/1.1x\r\nHost: h\r\n\r\n'],
    ['no target', 'GET HTTP/1.1\r\nHost: h\r\n\r\n'],
  ] as const) {
    const client = await setup.send(bytes)
    isOwnResponse(t, await client.response(), { status: 400, code: 'InvalidArgument' }, name)
    client.socket.end()
    t.equal(await client.closed(), 'end', name)
    t.equal(client.rest().length, 0, `${name}: one answer`)
  }
  await setup.upstreamSaw(t, 0)
})

t.test('an Upgrade header is ignored while upgrades are disabled', async (t) => {
  const setup = await startSetup(t)
  const offers = [
    HANDSHAKE,
    ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP__'],
    ['Upgrade: websocket'],
    ['Connection: upgrade', 'Upgrade: TLS/1.0'],
  ]
  const requests = [
    { line: 'GET /b/k', status: 200 },
    { line: 'POST /b/k', status: 200 },
    { line: 'GET /v2/auth/token', status: 200 },
    // A login without a body is an invalid argument.
    { line: 'POST /v2/auth/token', status: 400 },
  ]
  for (const lines of offers) {
    const goesOn = DECLINES_UPGRADES || !lines[0]?.startsWith('Connection')
    for (const { line, status } of requests) {
      const client = await setup.send(setup.head(line, ...lines))
      t.equal((await client.response()).status, status)
      if (goesOn) {
        client.send(setup.head('GET /behind'))
        t.equal((await client.response()).status, 200, 'the connection goes on')
        client.socket.destroy()
      } else {
        t.equal(await client.closed(), 'end')
      }
      for (const { headers } of setup.upstream.requests.splice(0)) {
        t.same(
          [headers['upgrade'], headers['connection'], headers['http2-settings']],
          [undefined, undefined, undefined],
        )
      }
    }
  }
})

/** Header lines of this many bytes as they are counted: names, values, `: ` and line ends. */
const linesOf = (bytes: number) => `X: ${'x'.repeat(bytes - 5)}\r\n`

t.test('a head up to the allowed size is accepted; a larger one is a 431', async (t) => {
  const setup = await startSetup(t)
  const fixed = `Host: h\r\n${setup.authorization}`
  // Node counts the target and the names and values of the lines, without what separates them.
  const room = 16384 - fixed.length - 100
  const withHead = (bytes: number) => `GET /b/k HTTP/1.1\r\n${fixed}${linesOf(bytes)}\r\n`
  t.equal((await setup.ask(withHead(room))).status, 200)
  await setup.upstreamSaw(t, 1)
  const tooLarge = { status: 431, code: 'InvalidArgument' }
  for (const [name, bytes] of [
    ['a little too large', withHead(room + 200)],
    ['twice as many', withHead(2 * room)],
    ['100 KiB in a line', withHead(100 * 1024)],
    ['1 MiB in a line', withHead(1024 * 1024)],
    ['100 KiB of target', `GET /${'x'.repeat(100 * 1024)} HTTP/1.1\r\n${fixed}\r\n`],
    ['16 KiB and a byte of target', `GET /${'x'.repeat(16384)} HTTP/1.1\r\n${fixed}\r\n`],
    ['100 KiB of a name', `GET /b/k HTTP/1.1\r\n${fixed}${'X'.repeat(100 * 1024)}: 1\r\n\r\n`],
    ['one line too many', `GET /b/k HTTP/1.1\r\n${fixed}${'a: b\r\n'.repeat(199)}\r\n`],
    ['100,000 lines', `GET /b/k HTTP/1.1\r\n${fixed}${'a: b\r\n'.repeat(100_000)}\r\n`],
    ['a head without end', `GET /b/k HTTP/1.1\r\n${fixed}X: ${'x'.repeat(40_000)}`],
    ['a token', `GET /b/k HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${'a'.repeat(40_000)}\r\n\r\n`],
  ] as const) {
    for (const bytesAt of name === 'a token' ? [bytes] : [bytes, bytes.replace('/b/k', '/v2/auth/token')]) {
      const client = await setup.send(bytesAt)
      isOwnResponse(t, await client.response(), tooLarge, name)
      client.socket.end()
      await client.closed()
      t.equal(client.rest().length, 0, name)
    }
  }
  t.equal((await setup.ask(`GET /b/k HTTP/1.1\r\n${fixed}${'a: b\r\n'.repeat(198)}\r\n`)).status, 200)
  await setup.upstreamSaw(t, 1)
})

t.test('a request head that takes too long is a 408, even if it drips', async (t) => {
  const setup = await startSetup(t, { settings: { 'timeouts-headers-seconds': '1' } })
  const late = { status: 408, code: 'InvalidArgument' }
  const silent = await setup.connect()
  const half = await setup.send('GET /b/k HTTP/1.1\r\nHost: h\r\nX: ')
  const dripping = await setup.connect()
  const drip = setInterval(() => dripping.send('a'), 20)
  t.teardown(() => clearInterval(drip))
  dripping.send(`GET /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}X: `)
  const second = await setup.send(setup.head('GET /b/k'))
  t.equal((await second.response()).status, 200)
  second.send('GET /b/k HTTP/1.1\r\n')
  for (const [name, client] of Object.entries({ silent, half, dripping, second })) {
    isOwnResponse(t, await client.response(), late, name)
    if (name === 'dripping') {
      clearInterval(drip)
    }
    client.socket.end()
    t.equal(await client.closed(), 'end', name)
    t.equal(client.rest().length, 0)
  }
  await setup.upstreamSaw(t, 1)
})

t.test('a client that half-closes during a request gets a 400', async (t) => {
  const setup = await startSetup(t)
  for (const bytes of [
    'GET /b/k HTTP/1.1\r\nHost: h\r\n',
    `PUT /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}Content-Length: 5\r\n\r\nhell`,
    `PUT /b/k HTTP/1.1\r\nHost: h\r\n${setup.authorization}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`,
    'POST /v2/auth/token HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n{',
  ]) {
    const client = await setup.send(bytes)
    client.socket.end()
    isOwnResponse(t, await client.response(), { status: 400, code: 'InvalidArgument' }, bytes.slice(-20))
    t.equal(await client.closed(), 'end')
  }
  const nothing = await setup.connect()
  nothing.socket.end()
  t.equal(await nothing.closed(), 'end')
  t.equal(nothing.received().length, 0, 'no bytes get no response')
  await setup.upstreamSaw(t, 0)
})

t.test('trailer lines are counted, apart from those of the head', async (t) => {
  const setup = await startSetup(t, { settings: { 'limits-header-lines': '10' } })
  const upload = (lines: number) =>
    `${setup.head('PUT /b/k', 'Transfer-Encoding: chunked')}1\r\nx\r\n0\r\n${'X-T: y\r\n'.repeat(lines)}\r\n`
  t.equal((await setup.ask(upload(10))).status, 200)
  const refused = await setup.ask(upload(11))
  isOwnResponse(t, refused, { status: 431, code: 'InvalidArgument' }, 'too many')
  t.equal(refused.headers['connection'], 'close')
  t.equal(await setup.outcome('client_trailers'), 1)

  const begun = await setup.request('PUT /begun', ['Transfer-Encoding: chunked'], '1\r\nx\r\n')
  const connection = () => setup.upstream.bytes.findIndex((bytes) => bytes.includes('PUT /begun'))
  await setup.upstream.until(() => connection() >= 0, 'the upload to begin')
  setup.upstream.sockets[connection()]?.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf')
  await begun.until('half')
  begun.send(`0\r\n${'X-T: y\r\n'.repeat(11)}\r\n`)
  await begun.closed()
  await setup.upstreamSaw(t, 1)
})

t.test('trailer lines of logins and links are counted, too', async (t) => {
  const settings = { 'limits-header-lines': '10', 'links-enabled': 'true' }
  const setup = await startSetup(t, { settings })
  const bodies = {
    'POST /v2/auth/token': setup.sidecar.logins[0],
    'POST /v2/auth/links': { method: 'GET', target: '/b/k' },
  }
  for (const [methodAndTarget, fields] of Object.entries(bodies)) {
    const body = JSON.stringify(fields)
    const chunk = `${body.length.toString(16)}\r\n${body}\r\n`
    const send = (lines: number) =>
      setup.ask(
        `${setup.head(methodAndTarget, 'Transfer-Encoding: chunked')}${chunk}0\r\n${'X-T: y\r\n'.repeat(lines)}\r\n`,
      )
    t.equal((await send(10)).status, 200, methodAndTarget)
    isOwnResponse(t, await send(11), { status: 431, code: 'InvalidArgument' }, methodAndTarget)
  }
})

t.test('connections above the limit are closed at once while the others are in use', async (t) => {
  const setup = await startSetup(t, { settings: { 'limits-connections': '2' } })
  const get = setup.head('GET /b/k')
  const first = await setup.connect()
  const second = await setup.connect()
  for (const client of [first, second]) {
    client.send(get)
    t.equal((await client.response()).status, 200)
    client.send(setup.head('PUT /b/k', 'Content-Length: 5'))
  }
  const inFlight = () => setup.sidecar.metric('auth_sidecar_requests_in_flight')
  await eventually(async () => (await inFlight()) === 2, 'both uploads to begin')
  for (let at = 0; at < 10; at++) {
    const third = await setup.connect().catch(() => undefined)
    if (third === undefined) {
      continue
    }
    third.send(get)
    await third.closed()
    t.equal(third.received().length, 0)
  }
  first.send('hello')
  t.equal((await first.response()).status, 200, 'those that are there go on')
  second.socket.destroy()
  const isServed = () =>
    setup
      .ask(get)
      .then(({ status }) => status === 200)
      .catch(() => false)
  await eventually(isServed, 'room for another connection')
})
