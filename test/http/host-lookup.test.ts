import dns from 'node:dns/promises'
import { mock } from 'node:test'
import pg from 'pg'
import t from 'tap'
import { clientConfig } from '../../src/credentials/postgres/database-pool.ts'
import { fetchJwks } from '../../src/keys/key-set.ts'
import { eventually } from '../support/eventually.ts'

t.test('hosts whose lookup hangs take one thread in all, and no thread of other hosts', async (t) => {
  const hanging: { readonly host: string; readonly fail: () => void }[] = []
  mock.method(dns, 'lookup', async (host: string) => {
    if (host === 'localhost') return [{ address: '127.0.0.1', family: 4 }]
    if (host === 'gone') throw Object.assign(new Error(), { code: 'ENOTFOUND' })
    const error = Object.assign(new Error(), { code: 'EAI_AGAIN' })
    return new Promise((_, reject) => hanging.push({ host, fail: () => reject(error) }))
  })
  let seconds = 0
  mock.method(performance, 'now', () => seconds * 1000)
  const alive = setInterval(() => {}, 1000) // unlike a lookup, a replaced one does not keep the process
  t.teardown(() => {
    mock.restoreAll()
    clearInterval(alive)
  })
  const fetchFrom = async (host: string) => {
    const source = { jwksUrl: `http://${host}:1/`, algorithms: [] }
    const fetched = await fetchJwks(source, undefined, 50)
    return fetched.ok ? [] : fetched.problems
  }
  const connectTo = (host: string) => {
    const config = clientConfig({ url: `postgres://u@${host}/d`, label: '' }, 1000)
    return new pg.Client({ ...config, connectionTimeoutMillis: 50 }).connect()
  }
  const asked = () => hanging.map(({ host }) => host).join()
  const late = ['did not arrive within 0.05 s']
  for (const host of ['one', 'two', 'one', 'two']) t.same(await fetchFrom(host), late)
  t.equal(asked(), 'one,two', 'one lookup for each')
  await t.rejects(connectTo('one'), /timeout/)
  t.equal(asked(), 'one,two', 'that of the database, too')
  const waiting = fetchFrom('one')
  seconds += 10
  for (const { fail } of hanging.splice(0)) fail()
  t.same(await waiting, ['cannot be fetched: EAI_AGAIN'])
  for (const host of ['one', 'two']) t.same(await fetchFrom(host), late)
  t.equal(asked(), 'one', 'of those that were slow, one at a time')
  t.same(await fetchFrom('localhost'), ['cannot be fetched: ECONNREFUSED'], 'another one at once')
  for (const _ of ['first', 'again'])
    t.same(await fetchFrom('gone'), ['cannot be fetched: ENOTFOUND'], 'one that fails at once does not wait')
  hanging.shift()?.fail()
  await eventually(() => hanging[0]?.host === 'two', 'the next')
  hanging.shift()?.fail()
})
