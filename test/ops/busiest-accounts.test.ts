import t from 'tap'
import {
  type AccountCount,
  BusiestAccounts,
  SpaceSaving,
  sumOfCounts,
  topAccounts,
} from '../../src/ops/busiest-accounts.ts'
import { eventually } from '../support/eventually.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'

/** Counts of a stream in which `busy` has every tenth request, and each other account one. */
function flood(others: number) {
  const sketch = new SpaceSaving(100)
  for (let at = 0; at < others; at++) {
    sketch.add(`account-${at}`, 1)
    if (at % 9 === 0) {
      sketch.add('busy', 1)
    }
  }
  return sketch
}

t.test('a busy account is found among thousands, in a bounded memory', (t) => {
  const entries = [...flood(9000).entries()].sort((a, b) => b.count - a.count)
  t.equal(entries.length, 100)
  t.equal(entries[0]?.key, 'busy')
  const count = entries[0]?.count ?? 0
  t.ok(
    count >= 1000 && count <= 1000 + 9000 / 100,
    `counted as ${count}: never too small, and hardly too large`,
  )
  t.end()
})

t.test('up to a hundred keys are counted exactly', (t) => {
  const sketch = new SpaceSaving(100)
  for (let at = 0; at < 5050; at++) {
    sketch.add(String(at % 100), at % 7)
  }
  for (const { key, count } of sketch.entries()) {
    let expected = 0
    for (let at = Number(key); at < 5050; at += 100) {
      expected += at % 7
    }
    t.equal(count, expected, key)
  }
  t.end()
})

t.test('counts are those of the last ten minutes', (t) => {
  let now = 0
  const accounts = new BusiestAccounts(() => now)
  const request = () => accounts.add('acme', 0, false)
  request()
  now += 5 * 60_000
  request()
  t.match(accounts.counts().requests, [{ account: 'acme', count: 2 }])
  now += 5 * 60_000 + 1
  t.match(accounts.counts().requests, [{ account: 'acme', count: 1 }])
  now += 10 * 60_000
  t.strictSame(accounts.counts(), { requests: [], bytes: [], refusals: [] })
  t.end()
})

t.test('counts of workers add up, and the ten largest are shown', (t) => {
  const list = (from: number) =>
    Array.from({ length: 20 }, (_, at) => ({ account: `a${at + from}`, count: 100 - at }))
  const worker = (from: number) => ({ requests: list(from), bytes: [], refusals: [] })
  const { requests } = topAccounts(sumOfCounts([worker(0), worker(1)]))
  t.equal(requests.length, 10)
  t.match(requests[0], { account: 'a1', count: 199 })
  t.end()
})

t.test('status.json names the accounts with most requests, bytes and refusals', async (t) => {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, {
    upstreamUrl: upstream.url,
    settings: { name: 'storage-7' },
    credentials: [{ accountId: 'acme' }, { accountId: 'globex' }],
  })
  const get = async (token: string) => {
    const headers = { Authorization: `Bearer ${token}` }
    await (await fetch(`http://127.0.0.1:${sidecar.port}/o`, { headers })).text()
  }
  const { accessKey = '' } = sidecar.logins[1] ?? {}
  const ofGlobex = { sub: 'globex', client_id: accessKey }
  const ended = await sidecar.mint({ now: Date.now() - 7_200_000, claims: ofGlobex })
  await get(sidecar.token)
  await get(sidecar.token)
  await get(await sidecar.mint({ claims: ofGlobex }))
  await get(ended)
  await get('made.up')
  const status = async () => {
    const response = await fetch(`http://127.0.0.1:${sidecar.adminPort}/status.json`)
    return JSON.parse(await response.text())
  }
  await eventually(async () => (await status()).requests.count === 5, 'five counted requests')
  const { name, busiest } = await status()
  t.equal(name, 'storage-7')
  t.strictSame(busiest.requests.map(({ account, count }: AccountCount) => `${account} ${count}`).toSorted(), [
    'acme 2',
    'globex 2',
  ])
  t.match(busiest.bytes, [{ count: Number }, { count: Number }])
  t.strictSame(busiest.refusals, [{ account: 'globex', count: 1 }], 'a made-up token has no account')
})
