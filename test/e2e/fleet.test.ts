/**
 * A fleet: two sidecars that issue tokens and four that only verify them, with their state in one database.
 */
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { databaseSetup, requirePostgres } from '../support/postgres.ts'
import { serve } from '../support/program.ts'
import { sidecarClient } from '../support/sidecar-client.ts'

const server = await requirePostgres(t)

t.test('a fleet refuses what is revoked or disabled, and nothing else', async (t) => {
  const names = Array.from({ length: 3 }, (_, at) => ({ accountId: 'acme', accessKey: `AK${at}` }))
  const { database, flags } = await databaseSetup(t, server.createDatabase, names, 'a chosen secret')
  const { 'keys-directory': directory, ...shared } = { ...flags, 'contract-logout': 'true' }
  const issuing = { ...shared, 'keys-directory': directory }
  const issuers = await Promise.all([serve(t, issuing), serve(t, issuing)])
  const verifiers = [...issuers, ...issuers].map(({ adminPort }) =>
    serve(t, { ...shared, 'keys-jwks-url': `http://127.0.0.1:${adminPort}/.well-known/jwks.json` }),
  )
  const sidecars = [...issuers, ...(await Promise.all(verifiers))]
  const fleet = sidecars.map(sidecarClient)
  const logIn = (key: number) =>
    fleet[key % 2]?.login({ accountId: 'acme', accessKey: `AK${key}`, secret: 'a chosen secret' }) ?? ''
  const logOut = async (token: string, at: number) => {
    const url = `http://127.0.0.1:${sidecars[at % sidecars.length]?.port}/v2/auth/token`
    return (await fetch(url, { method: 'DELETE', headers: { authorization: `Bearer ${token}` } })).status
  }
  const disable = (key: number) =>
    database.sql('UPDATE storage_auth.credentials SET disabled = true WHERE access_key = $1', [`AK${key}`])
  const everywhere = (token: string) => Promise.all(fleet.map(({ check }) => check(token)))
  const allSay = (what: string) => fleet.map(() => what)
  const refusedEverywhere = async (token: string) => {
    const refuses = (at: (typeof fleet)[number]) => async () => (await at.check(token)) === 'InvalidToken'
    await Promise.all(fleet.map((at) => eventually(refuses(at), 'the refusal')))
  }

  const good = await logIn(0)
  t.equal(await fleet[2]?.login({ accountId: 'a', accessKey: 'b', secret: 'c' }), '503 ServiceNotReady')

  const loggedOut = await logIn(1)
  t.same(await everywhere(loggedOut), allSay('ok'))
  await logOut(loggedOut, 1)
  await refusedEverywhere(loggedOut)
  t.same(await everywhere(good), allSay('ok'))

  const disabled = await logIn(1)
  t.same(await everywhere(disabled), allSay('ok'))
  await disable(1)
  await refusedEverywhere(disabled)
  t.same(await everywhere(good), allSay('ok'))

  const last = 2
  const refused = await logIn(last)
  const later = await logIn(last)
  t.equal(await logOut(refused, last), 204)
  await refusedEverywhere(refused)
  await server.kill()
  for (const at of sidecars.keys()) {
    t.equal(await logOut(later, at), 503)
  }
  for (const [token, says] of [
    [good, 'ok'],
    [later, 'ok'],
    [refused, 'InvalidToken'],
  ] as const) {
    t.same(await everywhere(token), allSay(says), 'without the database, by the last state')
  }
  await server.start()
  await disable(last)
  await refusedEverywhere(later)
  t.same(await everywhere(good), allSay('ok'))
  await eventually(async () => (await logOut(good, 3)) === 204, 'logouts by a sidecar that only verifies')
  await refusedEverywhere(good)
})
