/** A fleet: two sidecars that issue tokens and four that only verify them, with their state in one database. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { databaseSetup, requirePostgres } from '../support/postgres.ts'
import { serve } from '../support/program.ts'
import { sidecarClient } from '../support/sidecar-client.ts'

const server = await requirePostgres(t)

/** From the answer to a change until the last sidecar refuses. Measured: 240 ms in the median, 440 at worst. */
const WITHIN_MS = 1000
/** A late round is repeated if timers of this process were late by so much: the machine is busy. */
const BUSY_MS = 100
const MAX_ROUNDS = 5

t.test('a fleet refuses what is revoked or disabled within a second, and nothing else', async (t) => {
  const names = Array.from({ length: MAX_ROUNDS + 2 }, (_, at) => ({
    accountId: 'acme',
    accessKey: `AK${at}`,
  }))
  const { database, flags } = await databaseSetup(t, server.createDatabase, names, 'a chosen secret')
  const { 'keys-directory': directory, ...shared } = { ...flags, 'contract-logout': 'true' }
  const issuing = { ...shared, 'keys-directory': directory }
  const issuers = await Promise.all([serve(t, issuing), serve(t, issuing)])
  const verifiers = [...issuers, ...issuers].map(({ adminPort }) =>
    serve(t, { ...shared, 'keys-jwks-url': `http://127.0.0.1:${adminPort}/.well-known/jwks.json` }),
  )
  const sidecars = [...issuers, ...(await Promise.all(verifiers))]
  const fleet = sidecars.map(sidecarClient)
  const logIn = (round: number) =>
    fleet[round % 2]?.login({ accountId: 'acme', accessKey: `AK${round}`, secret: 'a chosen secret' }) ?? ''
  const logOut = async (token: string, at: number) => {
    const url = `http://127.0.0.1:${sidecars[at % sidecars.length]?.port}/v2/auth/token`
    return (await fetch(url, { method: 'DELETE', headers: { authorization: `Bearer ${token}` } })).status
  }
  const disable = (round: number) =>
    database.sql('UPDATE storage_auth.credentials SET disabled = true WHERE access_key = $1', [`AK${round}`])
  const everywhere = (token: string) => Promise.all(fleet.map(({ check }) => check(token)))
  const allSay = (what: string) => fleet.map(() => what)
  const refusedEverywhere = async (token: string) => {
    const refuses = (at: (typeof fleet)[number]) => async () => (await at.check(token)) === 'InvalidToken'
    await Promise.all(fleet.map((at) => eventually(refuses(at), 'the refusal')))
  }

  const good = await logIn(0)
  t.equal(await fleet[2]?.login({ accountId: 'a', accessKey: 'b', secret: 'c' }), '503 ServiceNotReady')
  for (const [what, change] of [
    ['a logout', logOut],
    ['a disabled credential', (_: string, round: number) => disable(round)],
  ] as const) {
    for (let round = 1; ; round++) {
      const token = await logIn(round)
      t.same(await everywhere(token), allSay('ok'))
      const delay = monitorEventLoopDelay({ resolution: 5 })
      await change(token, round)
      const changed = performance.now()
      delay.enable()
      await refusedEverywhere(token)
      const took = performance.now() - changed
      const isBusy = delay.max / 1e6 > BUSY_MS
      t.same(await everywhere(good), allSay('ok'))
      if (took >= WITHIN_MS && isBusy && round < MAX_ROUNDS) {
        continue
      }
      t.ok(took < WITHIN_MS, `${what}, after ${took.toFixed()} ms`)
      break
    }
  }

  const last = MAX_ROUNDS + 1
  const [refused, later] = [await logIn(last), await logIn(last)]
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
