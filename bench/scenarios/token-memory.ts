/**
 * What 10,000 remembered tokens hold in memory.
 *
 * Two sidecars get the same requests: one remembers as many tokens as by default, the other one token. What the first
 * holds more is the cache; growth alone would count the garbage of 10,000 verifications as well.
 *
 * @module
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench, Scenario } from '../bench.ts'
import { freePort, listening } from '../lab/ports.ts'
import { residentMegabytes } from '../lab/proc.ts'
import { type Requests, requestText, writeRequests } from '../lab/requests.ts'
import { median } from '../lab/statistics.ts'
import { runClient } from '../load/load.ts'
import { sidecar } from '../peers/sidecar.ts'

const TOKENS = 10_000

export const tokenMemory: Scenario = {
  name: 'token-memory',
  async run(bench) {
    const { lab, trust, rounds } = bench
    const texts = Array.from({ length: TOKENS }, () => requestText({ token: trust.mint('ES256') }))
    const cold = writeRequests(lab, 'token-memory', texts)
    const hot = writeRequests(lab, 'token-memory-hot', texts.slice(0, 1))
    const remembering: number[] = []
    const forgetting: number[] = []
    for (let round = 0; round < Math.min(rounds, 3); round++) {
      remembering.push(await growth(bench, hot, cold))
      forgetting.push(await growth(bench, hot, cold, { SIDECAR_CACHE_MAX_TOKENS: '1' }))
    }
    const [with10000, without] = [median(remembering), median(forgetting)]
    return {
      name: 'token-memory',
      title: 'Memory of 10,000 tokens',
      note:
        'Growth of resident memory by 10,000 different tokens that come at 2,000 a second, between seconds of one ' +
        'token; once with the default cache, once with a cache of one token. What is left without a cache is garbage ' +
        'that V8 has not collected yet; the difference is the cache.',
      rows: [
        { name: '10,000 remembered', figures: { rssGrowth: with10000 } },
        { name: 'none remembered', figures: { rssGrowth: without } },
        { name: 'difference', figures: { rssGrowth: with10000 - without } },
      ],
    }
  },
}

async function growth(
  { lab, trust, smallUpstream, quick }: Bench,
  hot: Requests,
  cold: Requests,
  settings?: Record<string, string>,
): Promise<number> {
  const port = await freePort()
  const running = sidecar('ES256', settings).start({ lab, trust, port, upstreamPort: smallUpstream })
  try {
    await listening(port)
    // The same before each look at the memory, so that both see about the same garbage.
    const resident = async () => {
      await runClient(lab, { port, requests: hot, connections: 50, seconds: quick ? 1 : 3 })
      await sleep(500)
      return residentMegabytes(running.pid)
    }
    const before = await resident()
    const rate = quick ? 5000 : 2000
    await runClient(lab, { port, requests: cold, connections: 50, seconds: TOKENS / rate + 0.2, rate })
    return (await resident()) - before
  } finally {
    await running.stop()
  }
}
