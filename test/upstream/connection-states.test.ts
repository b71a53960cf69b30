/**
 * Drives a connection and its parser through random events, and compares it with the state
 * machine of `contract.ts`.
 */
import type { LookupAddress } from 'node:dns'
import dns from 'node:dns/promises'
import { type OnReadOpts, Socket } from 'node:net'
import { mock } from 'node:test'
import fc from 'fast-check'
import t from 'tap'
import { ReadBuffers } from '../../src/upstream/buffers.ts'
import { UpstreamConnection } from '../../src/upstream/connection.ts'
import type {
  ConnectionPhase,
  ResponseReceiver,
  ServingConnection,
  UpstreamRequest,
} from '../../src/upstream/contract.ts'
import type { PartialResponse } from '../../src/upstream/response-parser.ts'

/** How the upstream responds, in the parts that it sends. */
const RESPONSES = {
  withLength: ['HTTP/1.1 200 OK\r\nContent-', 'Length: 2\r\n\r\n', 'o', 'k'],
  untilClose: ['HTTP/1.1 200 OK\r\n', '\r\n', 'x', 'y'],
  andCloses: ['HTTP/1.1 200 OK\r\nConnection: close\r\n', 'Content-Length: 1\r\n\r\n', 'x'],
  switches: [
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n',
    'Connection: Upgrade\r\n\r\n',
    'x',
    'y',
  ],
} as const
type ResponseKind = keyof typeof RESPONSES
/** In each of them, the second part ends the head. */
const HEAD_PARTS = 2

const EVENTS = [
  'addresses',
  'lookupFails',
  'connects',
  'refuses',
  'part',
  'part',
  'part',
  'strayBytes',
  'end',
  'reset',
  'restOfBody',
  'timePasses',
  'close',
] as const
type Exchange = { readonly response: ResponseKind; readonly hasBody: boolean }
type Event = (typeof EVENTS)[number] | Exchange

const exchange: fc.Arbitrary<Exchange> = fc.record({
  response: fc.constantFrom('withLength', 'withLength', 'untilClose', 'andCloses', 'switches'),
  hasBody: fc.boolean(),
})

/** What the receiver is told, in short. */
type Told = 'head' | 'body' | 'done' | 'stale' | string

/** The state machine, without any of the code that it describes. */
class Model {
  phase: ConnectionPhase
  readonly told: Told[] = []
  exchange: Exchange
  parts = 0
  isRequestWritten = false

  constructor(isNamed: boolean, first: Exchange) {
    this.phase = isNamed ? 'lookup' : 'connecting'
    this.exchange = first
  }

  get hasSocket(): boolean {
    return this.phase !== 'lookup' && this.phase !== 'connecting' && this.phase !== 'closed'
  }

  get awaitsResponse(): boolean {
    return this.phase === 'established' || this.phase === 'reused'
  }

  isPossible(event: Event): boolean {
    if (typeof event === 'object') {
      return this.phase === 'idle'
    }
    switch (event) {
      case 'addresses':
      case 'lookupFails':
        return this.phase === 'lookup'
      case 'connects':
      case 'refuses':
        return this.phase === 'connecting'
      case 'part':
        return (
          this.hasSocket && this.phase !== 'idle' && this.parts < RESPONSES[this.exchange.response].length
        )
      case 'strayBytes':
        return this.phase === 'idle' || this.awaitsResponse
      case 'restOfBody':
        return !this.isRequestWritten && (this.awaitsResponse || this.phase === 'receiving')
      case 'end':
      case 'reset':
        return this.hasSocket
      case 'timePasses':
      case 'close':
        return this.phase !== 'closed'
    }
  }

  apply(event: Event): void {
    if (typeof event === 'object') {
      this.exchange = event
      this.#send('reused')
      return
    }
    switch (event) {
      case 'addresses':
        this.phase = 'connecting'
        break
      case 'lookupFails':
        this.#fail('dns_error')
        break
      case 'connects':
        this.#send('established')
        break
      case 'refuses':
        this.#fail('connection_refused')
        break
      case 'part':
        this.#onPart()
        break
      case 'strayBytes':
        if (this.phase === 'idle') {
          this.#close()
        } else {
          this.#fail('http_protocol_error')
        }
        break
      case 'restOfBody':
        this.isRequestWritten = true
        break
      case 'end':
        this.#onClosedByUpstream(true)
        break
      case 'reset':
        this.#onClosedByUpstream(false)
        break
      case 'timePasses':
        this.#onTime()
        break
      case 'close':
        this.#close()
        break
    }
  }

  #send(phase: 'established' | 'reused'): void {
    this.phase = phase
    this.parts = 0
    this.isRequestWritten = !this.exchange.hasBody
    this.told.push('takeHead')
    if (this.exchange.hasBody) {
      this.told.push('onReadyForBody')
    }
  }

  #onPart(): void {
    const { response } = this.exchange
    this.parts++
    if (this.phase === 'tunnel') {
      this.told.push('tunnel')
      return
    }
    this.phase = 'receiving'
    if (this.parts === HEAD_PARTS && response === 'switches') {
      this.phase = 'tunnel'
      return
    }
    const isWhole = this.parts === RESPONSES[response].length && response !== 'untilClose'
    if (!isWhole) {
      return
    }
    this.told.push('done')
    if (response === 'withLength' && this.isRequestWritten) {
      this.phase = 'idle'
    } else {
      this.#close()
    }
  }

  #onClosedByUpstream(isClean: boolean): void {
    const endsBody = this.exchange.response === 'untilClose' && this.parts >= HEAD_PARTS
    if (this.phase === 'idle' || this.phase === 'tunnel') {
      if (this.phase === 'tunnel' && isClean) {
        this.told.push('tunnel done')
      }
      this.#close()
    } else if (this.phase === 'receiving' && isClean && endsBody) {
      this.told.push('done')
      this.#close()
    } else if (this.phase === 'receiving') {
      this.#fail('http_response_incomplete')
    } else {
      this.#fail('connection_terminated', this.phase === 'reused')
    }
  }

  /** More time than any limit. */
  #onTime(): void {
    if (this.phase === 'lookup') {
      this.#fail('dns_error')
    } else if (this.phase === 'connecting') {
      this.#fail('connection_timeout')
    } else if (this.phase === 'idle') {
      this.#close()
    } else if (this.phase !== 'tunnel' && this.isRequestWritten) {
      this.#fail(this.parts < HEAD_PARTS ? 'http_response_timeout' : 'connection_read_timeout')
    }
  }

  #fail(failure: string, isStale = false): void {
    this.told.push(isStale ? `${failure}, stale` : failure)
    this.#close()
  }

  #close(): void {
    this.phase = 'closed'
  }
}

/** A socket whose other end is the test. */
class TestSocket extends Socket {
  constructor() {
    super()
    Object.defineProperty(this, 'bytesWritten', { value: 0 })
  }

  override _write(_chunk: unknown, _encoding: string, callback: (error?: Error | null) => void): void {
    callback()
  }

  override _writev(_chunks: unknown, callback: (error?: Error | null) => void): void {
    callback()
  }

  override _read(): void {}
}

const errorWith = (code: string) => Object.assign(new Error(code), { code })

/** A connection, with the events of the network in the hands of the test. */
class Driven {
  readonly told: Told[] = []
  closed = 0
  readonly connection: UpstreamConnection
  #resolveLookup: (addresses: LookupAddress[]) => void = () => {}
  #rejectLookup: (error: Error) => void = () => {}
  #socket: TestSocket | undefined
  #onread: OnReadOpts | undefined
  #exchange: Exchange
  #parts = 0

  constructor(isNamed: boolean, first: Exchange, name: string) {
    const lookup = new Promise<LookupAddress[]>((resolve, reject) => {
      this.#resolveLookup = resolve
      this.#rejectLookup = reject
    })
    mock.method(dns, 'lookup', () => lookup)
    this.#exchange = first
    const address = {
      tls: false,
      host: name,
      name: isNamed ? name : undefined,
      open: (_ip: string | undefined, onread: OnReadOpts) => {
        this.#socket = new TestSocket()
        this.#onread = onread
        return this.#socket
      },
    }
    const pool = {
      config: {
        limits: {
          headerBytes: 1000,
          headerLines: 10,
          upstreamConnections: 1,
          upstreamQueue: 1,
          accountShare: 1,
        },
        timeouts: {
          idleSeconds: 60,
          upstreamConnectSeconds: 3,
          upstreamMaxAgeSeconds: 300,
          upstreamResponseSeconds: 60,
        },
      },
      readBuffers: new ReadBuffers(),
      onConnected() {},
      onReusable() {},
      onClosed: () => {
        this.closed++
      },
    }
    this.connection = new UpstreamConnection(address, pool, this.#request(first))
  }

  async apply(event: Event): Promise<void> {
    if (typeof event === 'object') {
      this.#exchange = event
      this.#parts = 0
      this.connection.send(this.#request(event))
    } else {
      this.#cause(event)
    }
    await new Promise(setImmediate)
  }

  #cause(event: (typeof EVENTS)[number]): void {
    switch (event) {
      case 'addresses':
        this.#resolveLookup([{ address: '192.0.2.1', family: 4 }])
        break
      case 'lookupFails':
        this.#rejectLookup(errorWith('ENOTFOUND'))
        break
      case 'connects':
        this.#socket?.emit('connect')
        break
      case 'refuses':
        this.#socket?.destroy(errorWith('ECONNREFUSED'))
        break
      case 'part':
        this.#receive(RESPONSES[this.#exchange.response][this.#parts] ?? '')
        this.#parts++
        break
      case 'strayBytes':
        this.#receive('SSH-2.0\r\n')
        break
      case 'end':
        this.#socket?.emit('end')
        break
      case 'reset':
        this.#socket?.destroy(errorWith('ECONNRESET'))
        break
      case 'restOfBody':
        this.connection.writeBody(['rest'], true)
        break
      case 'timePasses':
        this.connection.tick(performance.now())
        this.connection.tick(performance.now() + 600_000)
        break
      case 'close':
        this.connection.close()
        break
    }
  }

  #receive(text: string): void {
    const buffer = this.#onread?.buffer
    const target = typeof buffer === 'function' ? buffer() : buffer
    if (target !== undefined) {
      Buffer.from(target.buffer, target.byteOffset).write(text, 'latin1')
      this.#onread?.callback(text.length, target)
    }
  }

  #request({ hasBody, response }: Exchange): UpstreamRequest {
    const told = this.told
    const tunnel: ResponseReceiver = {
      onRead(response: PartialResponse) {
        response.body.takeText()
        told.push(response.isDone ? 'tunnel done' : 'tunnel')
      },
      onInternalError: (error) => told.push(String(error)),
    }
    return {
      account: undefined,
      queuedMonotonicMs: 0,
      isHeadRequest: false,
      isWebSocket: response === 'switches',
      hasBody,
      takeHead() {
        told.push('takeHead')
        return 'GET / HTTP/1.1\r\n\r\n'
      },
      onReadyForBody: () => told.push('onReadyForBody'),
      onRead(response: PartialResponse, connection: ServingConnection) {
        response.body.takeText()
        if (response.head?.status === 101) {
          connection.handOver(tunnel)
        } else if (response.isDone) {
          told.push('done')
        }
      },
      onWritable() {},
      onTick() {},
      onFailure: (failure, _cause, isStale) => told.push(isStale ? `${failure}, stale` : failure),
      onInternalError: (error) => told.push(String(error)),
    }
  }
}

t.test('a connection follows its state machine, whatever the order of events', async (t) => {
  t.teardown(() => mock.restoreAll())
  let runs = 0
  const reached = new Set<ConnectionPhase>()
  const check = async (isNamed: boolean, first: Exchange, events: readonly Event[]) => {
    runs++
    const model = new Model(isNamed, first)
    const driven = new Driven(isNamed, first, `name-${runs}.example`)
    const done: Event[] = []
    for (const event of events) {
      if (!model.isPossible(event)) {
        continue
      }
      done.push(event)
      model.apply(event)
      await driven.apply(event)
      reached.add(model.phase)
      const seen = { phase: driven.connection.phase, told: driven.told, closed: driven.closed }
      const expected = { phase: model.phase, told: model.told, closed: model.phase === 'closed' ? 1 : 0 }
      if (JSON.stringify(seen) !== JSON.stringify(expected)) {
        throw new Error(`after ${JSON.stringify(done)}: ${JSON.stringify({ seen, expected })}`)
      }
    }
    driven.connection.close()
  }
  // Most orders of events end early: steps towards a response are more frequent.
  const progress = fc.constantFrom(
    'addresses',
    'connects',
    'part',
    'restOfBody',
  ) satisfies fc.Arbitrary<Event>
  const event: fc.Arbitrary<Event> = fc.oneof(
    { weight: 8, arbitrary: progress },
    { weight: 2, arbitrary: exchange },
    { weight: 1, arbitrary: fc.constantFrom(...EVENTS) },
  )
  const orders = fc.array(event, { minLength: 10, maxLength: 80 })
  await fc.assert(fc.asyncProperty(fc.boolean(), exchange, orders, check), { numRuns: 1000 })
  t.same(
    [...reached].sort(),
    ['closed', 'connecting', 'established', 'idle', 'receiving', 'reused', 'tunnel'],
    'every phase that events lead to',
  )
})
