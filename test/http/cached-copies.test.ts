import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { createLoginThrottle } from '../../src/credentials/throttles.ts'
import { requestHead } from '../../src/proxy/request-headers.ts'
import { createPeers } from '../../src/request/client-address.ts'
import { TokenCache } from '../../src/token/cache.ts'
import { requestContext } from '../support/request-context.ts'
import { admitted } from '../support/request-heads.ts'
import { makeCaller } from '../support/tokens.ts'

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

const COUNT = 1000
const LINE = 15_000

/** A text cut from the middle of a line of its own. */
function cut(text: string): string {
  const line = Buffer.alloc(LINE, `${text},`).toString('latin1')
  return line.slice(text.length + 1, 2 * text.length + 1)
}

/** Megabytes that stay on the heap after COUNT calls. */
async function growth(fill: (at: number) => unknown): Promise<number> {
  for (let at = 0; at < 10; at++) await fill(-at)
  collectGarbage()
  const before = process.memoryUsage().heapUsed
  for (let at = 0; at < COUNT; at++) await fill(at)
  collectGarbage()
  return (process.memoryUsage().heapUsed - before) / 2 ** 20
}

t.test('no cache keeps the line from which its keys and values were cut', async (t) => {
  const throttle = createLoginThrottle({ count: 20, windowSeconds: 60 })
  const peer = createPeers(['127.0.0.1'])({ remoteAddress: '127.0.0.1' }, false, 8080)
  const cache = new TokenCache({
    verifyUncached: async () => makeCaller(),
    isIdRevoked: () => false,
    maxTokens: 10_000,
    maxAgeSeconds: 300,
    now: Date.now,
  })
  const caches: Record<string, (at: number) => unknown> = {
    'tokens and their identity lines': async (at) => {
      const caller = await cache.verify(cut(`AAAAAAAAAAAAAAAA.${at}.AAAAAAAAAAAAAAAA`))
      if ('reason' in caller) throw new Error('refused')
      const decision = { act: 'forward', caller } as const
      const context = requestContext(peer, 'r')
      const upstream = { host: 'h', assertionAudience: '', forwardAuthorization: false }
      requestHead(context, admitted({}), decision, upstream)
    },
    'failed logins': (at) => {
      const address = peer.clientAddress(cut(`203.0.${(at + 10) >> 8}.${(at + 10) % 256}`))
      const login = { accountId: cut(`an account with a long name ${at}`), accessKey: cut(`a key ${at}`) }
      return throttle(login, address, async () => 'rejected')
    },
  }
  for (const [name, fill] of Object.entries(caches)) {
    const grown = await growth(fill)
    t.ok(grown < 3, `${name}: ${grown.toFixed(1)} MB for ${COUNT} entries from ${(COUNT * LINE) / 1e6} MB`)
  }
})
