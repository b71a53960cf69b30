/**
 * The scenarios of the sidecar's process: how fast it starts, and what it and its token cache hold in memory.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../test/support/free-port.ts'
import type { Bench, Section } from './compare.ts'
import { ask, listening, median, type Running, residentMegabytes } from './lab.ts'
import { load, type Requests, requestText, writeRequests } from './load.ts'
import { type Peer, sidecarWith } from './peers.ts'

const TOKENS = 10_000
const MAX_START_MS = 30_000

/** From exec to the first 200 of `/readyz`, and the resident memory of an idle process. */
export async function start(bench: Bench): Promise<Section> {
  const times: number[] = []
  for (let round = 0; round < (bench.quick ? 3 : 11); round++) {
    const { running, readyMs } = await startUntilReady(bench)
    times.push(readyMs)
    await running.stop()
  }
  const { running } = await startUntilReady(bench)
  await sleep(bench.quick ? 2000 : 10_000)
  const rss = residentMegabytes(running)
  await running.stop()
  const figures = { 'ready ms': median(times), 'RSS MB': rss }
  return { title: 'Start and idle memory', rows: [{ name: 'sidecar', figures }] }
}

export interface ReadySidecar {
  readonly running: Running
  readonly port: number
  readonly adminPort: number
  /** From exec to the first 200 of `/readyz`. */
  readonly readyMs: number
}

/**
 * Starts a sidecar in front of the small upstream.
 * @param settings - further ones, as environment variables
 * @param peerWith - makes a sidecar of settings
 */
export async function startUntilReady(
  bench: Bench,
  settings: Readonly<Record<string, string>> = {},
  peerWith: (settings: Readonly<Record<string, string>>) => Peer = sidecarWith,
): Promise<ReadySidecar> {
  const port = await freePort()
  const adminPort = await freePort()
  const peer = peerWith({ ...settings, SIDECAR_ADMIN_PORT: String(adminPort) })
  const began = performance.now()
  const running = await peer.start({ ...bench, port, upstreamPort: bench.smallUpstream })
  while (true) {
    const { status } = await ask(adminPort, '/readyz').catch(() => ({ status: 0 }))
    const readyMs = performance.now() - began
    if (status === 200) {
      return { running, port, adminPort, readyMs }
    }
    if (readyMs > MAX_START_MS) {
      await running.stop()
      throw new Error('the sidecar does not become ready')
    }
    await sleep(2)
  }
}

/**
 * Two sidecars receive the same 10,000 tokens; one caches them all, the other one of them. The difference
 * of their growth is the cache: growth alone would count the garbage of 10,000 verifications as well.
 */
export async function tokens(bench: Bench): Promise<Section> {
  const texts = Array.from({ length: TOKENS }, () => requestText(bench.trust.mint()))
  const all = writeRequests(bench.lab, texts)
  const one = writeRequests(bench.lab, texts.slice(0, 1))
  const cached: number[] = []
  const uncached: number[] = []
  for (let round = 0; round < Math.min(bench.rounds, 3); round++) {
    cached.push(await growth(bench, one, all, {}))
    uncached.push(await growth(bench, one, all, { SIDECAR_CACHE_MAX_TOKENS: '1' }))
  }
  const figures = { 'growth MB': median(cached) - median(uncached) }
  return { title: 'Memory of 10,000 tokens', rows: [{ name: 'difference', figures }] }
}

/** Growth of resident memory in MB by all tokens, between loads with one token. */
async function growth(
  bench: Bench,
  one: Requests,
  all: Requests,
  settings: Readonly<Record<string, string>>,
): Promise<number> {
  const { lab, quick, smallUpstream } = bench
  const port = await freePort()
  const running = await sidecarWith(settings).start({ ...bench, port, upstreamPort: smallUpstream })
  const rate = quick ? 5000 : 2000
  const common = { port, connections: 50, rate }
  const resident = async () => {
    await load(lab, { ...common, requests: one, seconds: quick ? 1 : 3 })
    await sleep(500)
    return residentMegabytes(running)
  }
  try {
    await listening(port)
    const before = await resident()
    await load(lab, { ...common, requests: all, seconds: TOKENS / rate + 0.2 })
    return (await resident()) - before
  } finally {
    await running.stop()
  }
}
