/**
 * `npm run bench`: what a forwarded request costs the process that forwards it, beside its peers.
 *
 * Every peer stands in front of the same upstream and is asked the same by the same load, in rounds that alternate
 * so that the drift of the machine cancels. The proxy under test has one core, load and upstream the other. What is
 * compared is CPU time per request, from `/proc`, and its ratio within this run; an absolute time says nothing about
 * another machine.
 *
 *     npm run bench -- [--rounds 5] [--seconds 4] [--only sidecar,stock]
 *
 * @module
 */
import { parseArgs } from 'node:util'
import { loadOf } from './load.ts'
import { cpuMicroseconds, median, residentMegabytes } from './measure.ts'
import { type Peer, startPeers } from './peers.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    only: { type: 'string' },
  },
})
const rounds = Number(values.rounds)
const seconds = Number(values.seconds)
const wanted = values.only?.split(',')

const { peers, upstream, missing, stop } = await startPeers(wanted)
try {
  for (const name of missing) console.log(`left out: ${name} is not installed`)
  const costs = new Map<Peer, { micros: number[]; rate: number[] }>()
  for (const peer of peers) {
    await loadOf(peer, 1) // warm-up: compiled code, open connections
    costs.set(peer, { micros: [], rate: [] })
  }
  for (let round = 0; round < rounds; round++) {
    for (const [peer, { micros, rate }] of costs) {
      const before = cpuMicroseconds(peer.pid)
      const requests = await loadOf(peer, seconds)
      micros.push((cpuMicroseconds(peer.pid) - before) / requests)
      rate.push(requests / seconds)
    }
  }
  const of = (name: string) => {
    const found = [...costs].find(([peer]) => peer.name === name)
    return found === undefined ? Number.NaN : median(found[1].micros)
  }
  console.log(
    `1 KiB GET, keep-alive, 50 connections, ${rounds} rounds of ${seconds} s; upstream: ${upstream}\n`,
  )
  console.log('| peer | CPU us/request | to nginx | to stock http-proxy | requests/s | RSS MB |')
  console.log('|---|---|---|---|---|---|')
  for (const [peer, { micros, rate }] of costs) {
    const cost = median(micros)
    const cells = [
      peer.name,
      cost.toFixed(1),
      (cost / of('nginx')).toFixed(2),
      (cost / of('stock')).toFixed(2),
      median(rate).toFixed(0),
      residentMegabytes(peer.pid).toFixed(0),
    ]
    console.log(`| ${cells.join(' | ')} |`)
  }
} finally {
  stop()
}
