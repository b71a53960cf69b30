import t from 'tap'
import { createConnections } from '../../../src/credentials/postgres/connections.ts'
import { createListener } from '../../../src/credentials/postgres/listener.ts'
import { CHANNEL } from '../../../src/credentials/postgres/schema.ts'
import { eventually } from '../../support/eventually.ts'
import { NO_SERVER } from '../../support/opened-store.ts'
import { startPostgres } from '../../support/postgres.ts'

const server = await startPostgres(t)
if (server === undefined) {
  t.plan(0, NO_SERVER)
  process.exit()
}
const { createDatabase } = server

/** A listener on a database, and what it tells. */
function listen(t: { teardown(stop: () => unknown): void }, url: string) {
  const connections = createConnections({ url, label: 'x', tlsFiles: [] }, { max: 2, connectMs: 5000 })
  const told = { notified: 0, deaf: 0 }
  const when = { notified: () => {} }
  const listener = createListener({
    connections,
    onNotify: () => {
      told.notified++
      when.notified()
    },
    onDeaf: () => {
      told.deaf++
    },
    pingMs: 5000,
    longestDeafMs: 50,
  })
  t.teardown(async () => {
    listener.stop()
    await connections.close()
  })
  return { listener, connections, told, when }
}

t.test('it tells when it begins to hear, and of each notification', async (t) => {
  const { url, sql } = await createDatabase('empty')
  const { told } = listen(t, url)
  await eventually(() => told.notified === 1, 'the beginning')
  await sql(`NOTIFY ${CHANNEL}`)
  await eventually(() => told.notified === 2, 'the notification')
  await sql('NOTIFY other')
  await sql(`NOTIFY ${CHANNEL}`)
  await eventually(() => told.notified === 3, 'the notification')
  t.equal(told.deaf, 0)
})

t.test('after it was cut off it hears again, and tells as something may have been missed', async (t) => {
  const { url, sql } = await createDatabase('empty')
  const { told } = listen(t, url)
  await eventually(() => told.notified === 1, 'the beginning')
  await sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()`)
  await eventually(() => told.notified === 2, 'the new beginning')
  t.equal(told.deaf, 1)
  await sql(`NOTIFY ${CHANNEL}`)
  await eventually(() => told.notified === 3, 'the notification')
})

t.test('while there is nothing to hear it tries again, and tells of it once', async (t) => {
  const { told, connections } = listen(t, server.url('no_such_database'))
  let tries = 0
  const { take } = connections
  Object.assign(connections, {
    take: () => {
      tries++
      return take()
    },
  })
  await eventually(() => tries >= 3, 'some tries')
  t.same(told, { notified: 0, deaf: 1 })
})

t.test('it may be stopped at any moment, and leaves nothing behind', async (t) => {
  const { url, sql } = await createDatabase('empty')
  const connecting = listen(t, url)
  connecting.listener.stop()
  const failing = listen(t, server.url('no_such_database'))
  failing.listener.stop()
  const beginning = listen(t, url)
  await new Promise<void>((resolve) => {
    beginning.when.notified = resolve
  })
  const hearing = listen(t, url)
  hearing.when.notified = hearing.listener.stop
  await eventually(() => hearing.told.notified === 1, 'the beginning')
  beginning.listener.stop()
  const all = [connecting, failing, beginning, hearing]
  await Promise.all(all.map(({ connections }) => connections.close()))
  t.same(
    all.map(({ told }) => told),
    [
      { notified: 0, deaf: 0 },
      { notified: 0, deaf: 0 },
      { notified: 1, deaf: 0 },
      { notified: 1, deaf: 0 },
    ],
  )
  const left = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
  await eventually(async () => (await sql(left)).length === 0, 'the connections to be closed')
})
