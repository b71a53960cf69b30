/**
 * The benchmark's own load generator: `node load-client.ts JSON` with `LoadOptions`; prints a `LoadReport`.
 *
 * Without a rate, each connection sends its next request when the previous one is answered.
 * With a rate, requests become due in steps of a millisecond. One that finds no idle connection waits,
 * and the wait counts as latency. Answers need a `Content-Length`.
 */
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { median, quantile } from './lab.ts'
import { type LoadOptions, SEPARATOR } from './load.ts'

const {
  port,
  requests,
  connections,
  seconds,
  rate,
  settleSeconds = 0,
  parts = 1,
  first = 0,
}: LoadOptions = JSON.parse(process.argv[2] ?? '')
const texts = readFileSync(requests.file, 'latin1').split(SEPARATOR)

/** One list for each part of the time. */
const latencies: readonly number[][] = Array.from({ length: parts }, () => [])
let refused = 0
let failed = 0
let turn = first
const began = performance.now()
const counts = began + settleSeconds * 1000
const ends = counts + seconds * 1000
const idle: Connection[] = []
/** When the requests that wait for a connection became due. */
const waiting: number[] = []

/** One connection that sends one request at a time; opened again whenever the other side closes it. */
class Connection {
  #socket: Socket | undefined
  #due = 0
  #busy = false
  #partOfHead: Buffer | undefined
  #status = 0
  /** Bytes of the body that are missing; -1 while the head is read. */
  #left = -1
  #closes = false

  send(due: number): void {
    this.#due = due
    this.#busy = true
    this.#left = -1
    this.#closes = false
    this.#socket ??= this.#open()
    this.#socket.write(texts[turn % texts.length] ?? '', 'latin1')
    turn++
  }

  #open(): Socket {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    socket.on('data', (chunk) => this.#read(chunk))
    socket.on('error', () => {})
    socket.on('close', () => {
      if (this.#socket !== socket) {
        return
      }
      this.#socket = undefined
      if (this.#busy) {
        this.#finish(false)
      }
    })
    return socket
  }

  #read(chunk: Buffer): void {
    if (this.#left < 0) {
      const data = this.#partOfHead === undefined ? chunk : Buffer.concat([this.#partOfHead, chunk])
      const end = data.indexOf('\r\n\r\n')
      this.#partOfHead = end < 0 ? data : undefined
      if (end < 0) {
        return
      }
      const head = data.toString('latin1', 0, end)
      this.#status = Number(head.slice(9, 12))
      this.#closes = /\r\nconnection: *close/i.test(head)
      this.#left = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1]) - (data.length - end - 4)
    } else {
      this.#left -= chunk.length
    }
    if (this.#left === 0) {
      this.#finish(true)
    }
  }

  #count(answered: boolean, now: number): void {
    if (!answered) {
      failed++
      return
    }
    const part = Math.floor(((this.#due - counts) * parts) / (ends - counts))
    latencies[part]?.push(now - this.#due)
    if (this.#status >= 400) {
      refused++
    }
  }

  #finish(answered: boolean): void {
    this.#busy = false
    if (this.#closes) {
      const closing = this.#socket
      this.#socket = undefined
      closing?.destroy()
    }
    const now = performance.now()
    if (now >= ends) {
      return
    }
    if (this.#due >= counts) {
      this.#count(answered, now)
    }
    const due = rate === undefined ? now : waiting.shift()
    if (due === undefined) {
      idle.push(this)
    } else {
      this.send(due)
    }
  }
}

const all = Array.from({ length: connections }, () => new Connection())
if (rate === undefined) {
  for (const connection of all) {
    connection.send(performance.now())
  }
} else {
  idle.push(...all)
  let released = 0
  const stepping = setInterval(() => {
    const now = performance.now()
    if (now >= ends) {
      clearInterval(stepping)
    }
    const due = ((now - began) * rate) / 1000
    while (released < due) {
      released++
      const connection = idle.shift()
      if (connection === undefined) {
        waiting.push(now)
      } else {
        connection.send(now)
      }
    }
  }, 1)
}

/** A part without an answer counts as the worst. */
const p99Of = (ofPart: readonly number[]) =>
  ofPart.length > 0 ? quantile(ofPart, 0.99) : Number.MAX_SAFE_INTEGER

setTimeout(() => {
  const elapsed = (performance.now() - counts) / 1000
  const p99 = median(latencies.map(p99Of))
  const ofAllParts = latencies.flat()
  const inTime = ofAllParts.filter((latency) => latency <= 1000).length
  const report = { requests: ofAllParts.length, seconds: elapsed, p99, inTime, refused, failed }
  process.stdout.write(JSON.stringify(report), () => process.exit())
}, ends - began)
