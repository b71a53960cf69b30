import t from 'tap'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import { eventually } from '../support/eventually.ts'
import { makeKeyDirectory } from '../support/keys.ts'
import { NO_SERVER } from '../support/opened-store.ts'
import { startPostgres } from '../support/postgres.ts'
import { serve } from '../support/program.ts'
import { OK, recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'

const server = await startPostgres(t)
if (server === undefined) {
  t.plan(0, NO_SERVER)
  process.exit()
}

const WITHIN_MS = 3000 // one second, and a busy machine

t.test('two issuers and four verify-only sidecars share one state', async (t) => {
  const database = await server.createDatabase('tables')
  const hash = await hashSecret('a chosen secret', 'sha256')
  const login = (accessKey: string) => ({ accountId: 'acme', accessKey, secret: 'a chosen secret' })
  for (const accessKey of ['AK1', 'AK2', 'AK3']) {
    const columns = '(account_id, access_key, secret_hash) VALUES ($1, $2, $3)'
    await database.sql(`INSERT INTO storage_auth.credentials ${columns}`, ['acme', accessKey, hash])
  }
  const [key, upstream] = [await makeKeyDirectory(t), await recordingUpstream(t)]
  upstream.reply(OK)
  const shared = { 'credentials-postgres-url-file': database.urlFile, 'contract-logout': 'true' }
  const flags = { ...shared, 'keys-directory': key.directory, 'upstream-url': upstream.url }
  const issuers = await Promise.all([serve(t, flags), serve(t, flags)])
  const verifiers = await Promise.all(
    [0, 1, 2, 3].map((at) =>
      startSidecar(t, {
        upstreamUrl: upstream.url,
        jwksUrl: `http://127.0.0.1:${issuers[at % 2]?.adminPort}/.well-known/jwks.json`,
        settings: shared,
      }),
    ),
  )
  const all = [...issuers, ...verifiers].map(sidecarClient)
  const [one, two] = all
  if (one === undefined || two === undefined) throw new Error('two issuers were started')
  const [disabled, loggedOut, good] = [
    await one.login(login('AK1')),
    await two.login(login('AK2')),
    await one.login(login('AK3')),
  ]
  const everywhere = async (token: string) => [
    ...new Set(await Promise.all(all.map(({ check }) => check(token)))),
  ]
  for (const token of [disabled, loggedOut, good]) t.same(await everywhere(token), ['ok'])
  t.equal(await sidecarClient(verifiers[0] ?? issuers[0]).login(login('AK3')), '503 ServiceNotReady')

  /** How long it takes until every sidecar refuses a token. */
  const refusedAfter = async (token: string) => {
    const started = performance.now()
    await eventually(async () => (await everywhere(token)).join() === 'InvalidToken', 'the refusal')
    return performance.now() - started
  }
  await database.sql("UPDATE storage_auth.credentials SET disabled = true WHERE access_key = 'AK1'")
  t.ok((await refusedAfter(disabled)) < WITHIN_MS)
  const ended = await fetch(`http://127.0.0.1:${verifiers[0]?.port}/v2/auth/token`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${loggedOut}` },
  })
  t.equal(ended.status, 204, 'a verify-only sidecar ends a token')
  t.ok((await refusedAfter(loggedOut)) < WITHIN_MS)
  t.same(await everywhere(good), ['ok'])

  server.kill()
  for (let times = 0; times < 5; times++) {
    t.same(await everywhere(good), ['ok'], 'without the database')
    t.same(await everywhere(disabled), ['InvalidToken'])
    t.same(await everywhere(loggedOut), ['InvalidToken'])
  }
})
