/**
 * `contract.logout`:
 * DELETE on the token endpoint ends the token; in every sidecar of a database: `fleet.test.ts`.
 */
import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { makeKey, type TestKeyDirectory } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { databaseSetup, requirePostgres } from '../support/postgres.ts'
import { runProgram, serveArgs } from '../support/program.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { AUDIENCE, ISSUER, mintToken } from '../support/tokens.ts'

const server = await requirePostgres(t)
const { createDatabase, kill, start } = server
const ACCOUNTS = 20

/**
 * A database with accounts `a0`, `a1`, ..., and the flags of sidecars whose role may do what the docs grant.
 */
async function prepare(t: Test, alg: 'ES256' | 'HS256' = 'ES256') {
  const credentials = Array.from({ length: ACCOUNTS }, (_, at) => ({ accountId: `a${at}`, accessKey: 'AK' }))
  const { database, flags, ...setup } = await databaseSetup(t, createDatabase, credentials, 'a secret', alg)
  const role = `sidecar_${database.name}`
  const page = readFileSync('docs/credentials-and-revocations.md', 'utf8')
  const grants = page.match(/^GRANT .* TO sidecar;/gm) ?? []
  await database.sql(`CREATE ROLE ${role} LOGIN; ${grants.join('\n').replaceAll('sidecar;', `${role};`)}`)
  await writeFile(database.urlFile, database.url.replace('postgres@', `${role}@`))
  return { ...setup, database, role, flags: { ...flags, 'contract-logout': 'true' } }
}

const mint = (key: TestKeyDirectory, account = 'a0', lifetimeSeconds = 3600, jti?: string) =>
  mintToken({ key, lifetimeSeconds, claims: { sub: account, client_id: 'AK', ...(jti && { jti }) } })

async function ask(
  { port }: { readonly port: number },
  method: string,
  path: string,
  token?: string,
  more: Record<string, string> = {},
) {
  const headers = { ...(token && { authorization: `Bearer ${token}` }), ...more }
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers })
  return {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    body: await response.text(),
  }
}

const PATH = '/v2/auth/token'
const logOut = (sidecar: TestSidecar, token: string) => ask(sidecar, 'DELETE', PATH, token)
const get = async (sidecar: TestSidecar, token: string) => (await ask(sidecar, 'GET', '/o', token)).status

t.test('a logout ends its token at once, and no other token', async (t) => {
  const { key, flags, upstream } = await prepare(t)
  const here = await startSidecar(t, { settings: flags })
  const token = await mint(key, 'a0', 3600, 'ends')
  const other = await mint(key)
  for (const each of [token, other]) {
    t.equal(await get(here, each), 200)
  }
  const headers = { 'content-length': undefined, 'cache-control': 'no-store' }
  t.match(await logOut(here, token), { status: 204, body: '', headers })
  t.equal(await get(here, token), 400, 'refused at once')
  t.match(await logOut(here, token), { status: 400, body: /"InvalidToken"/ }, 'and so is a second logout')
  t.equal(await get(here, other), 200)
  t.equal((await ask(here, 'GET', PATH, other)).status, 200)
  t.equal((await ask(here, 'DELETE', '/object', other)).status, 200, 'a DELETE of storage')
  t.equal(upstream.requests.at(-1)?.method, 'DELETE')

  t.equal(await here.metric('auth_sidecar_requests_total{route="logout",method="DELETE",status="204"}'), 1)
  const hits = await here.metric('auth_sidecar_token_cache_hits_total')
  t.equal(hits, 4, 'the other token was never verified again')
  const audit = here.log.filter(({ event }) => event === 'logout')
  t.match(audit, [{ msg: 'audit', outcome: 'ok', account: 'a0', accessKey: 'AK', tokenId: 'ends' }])
})

t.test('a token that is ended five times at once is one row, with its issuer', async (t) => {
  const { key, flags, database } = await prepare(t)
  const sidecars = await Promise.all([1, 2].map(() => startSidecar(t, { settings: flags })))
  const token = await mint(key, 'a0', 3600, 'five')
  const end = async (sidecar: TestSidecar): Promise<number> => {
    const { status } = await logOut(sidecar, token)
    return status === 503 ? end(sidecar) : status // on a busy machine, the database may take too long
  }
  const ends = sidecars.flatMap((sidecar) => Array.from({ length: 5 }, () => end(sidecar)))
  const statuses = new Set(await Promise.all(ends))
  statuses.delete(400) // a logout that came after the refusal
  t.same([...statuses], [204])
  t.same(await database.sql('SELECT jti, issuer, ended_by FROM storage_auth.revocations'), [
    { jti: 'five', issuer: ISSUER, ended_by: 'a0' },
  ])
})

t.test("a token of a trusted issuer with another token's id ends itself alone", async (t) => {
  const { key, flags } = await prepare(t)
  const foreignKey = await makeKey('RS256', 'foreign')
  const keySet = createServer((_req, res) => {
    res.end(JSON.stringify({ keys: [foreignKey.publicJwk] }))
  })
  const issuer = 'https://idp.example'
  const jwksUrl = `http://127.0.0.1:${await listen(t, keySet)}/keys`
  const entry = { issuer, jwksUrl, audience: AUDIENCE, accountPrefix: 'idp:' }
  const sidecar = await startSidecar(t, {
    settings: { ...flags, 'trusted-issuers': JSON.stringify([entry]) },
  })
  const victim = await mint(key, 'a0', 3600, 'same')
  const claims = { iss: issuer, sub: 'attacker', client_id: undefined, jti: 'same' }
  const attacker = await mintToken({ key: foreignKey, header: { typ: 'JWT' }, claims })
  await eventually(async () => (await get(sidecar, attacker)) === 200, 'the key set')
  t.equal(await get(sidecar, victim), 200)
  t.equal((await logOut(sidecar, attacker)).status, 204)
  t.equal(await get(sidecar, attacker), 400)
  t.equal(await get(sidecar, victim), 200)
  t.equal((await logOut(sidecar, victim)).status, 204)
  t.equal(await get(sidecar, victim), 400)
})

t.test('a refused token, and no token, get their refusal; report mode forwards no logout', async (t) => {
  const { key, flags, upstream } = await prepare(t)
  const sidecar = await startSidecar(t, { settings: { ...flags, enforcement: 'report' } })
  const expired = await mintToken({ key, now: Date.now() - 7_200_000 })
  for (const [token, code] of [
    [undefined, 'InvalidToken'],
    ['x.y.z', 'InvalidToken'],
    [expired, 'ExpiredToken'],
  ] as const) {
    t.match(await ask(sidecar, 'DELETE', `${PATH}/?x=1`, token), {
      status: 400,
      body: new RegExp(`"${code}"`),
    })
  }
  t.equal(upstream.requests.length, 0)
})

t.test('DELETE is a method of the endpoint only where logout is on', async (t) => {
  const { key, flags } = await prepare(t)
  const cors = { 'cors-allowed-origins': 'https://app.example' }
  const preflight = { Origin: 'https://app.example', 'Access-Control-Request-Method': 'DELETE' }
  for (const [logout, methods, status] of [
    ['true', 'GET, HEAD, POST, DELETE', 204],
    ['false', 'GET, HEAD, POST', 405],
  ] as const) {
    const sidecar = await startSidecar(t, { settings: { ...flags, ...cors, 'contract-logout': logout } })
    t.equal((await logOut(sidecar, await mint(key))).status, status)
    t.match(await ask(sidecar, 'PUT', PATH), { status: 405, headers: { allow: methods } })
    t.match(await ask(sidecar, 'OPTIONS', PATH, undefined, preflight), {
      status: 204,
      headers: { 'access-control-allow-methods': methods },
    })
  }
  const args = serveArgs({ 'contract-logout': 'true', 'upstream-url': 'http://a' })
  t.match(await runProgram(t, ['config', 'check', ...args]), {
    code: 2,
    stderr: 'contract.logout: needs credentials.postgres',
  })
})

t.test('an account may log out 60 times a minute', async (t) => {
  const { key, flags } = await prepare(t, 'HS256')
  const sidecar = await startSidecar(t, { settings: flags })
  const tokens = await Promise.all(Array.from({ length: 62 }, () => mint(key)))
  const statuses = await Promise.all(tokens.map(async (token) => (await logOut(sidecar, token)).status))
  t.equal(statuses.filter((status) => status === 204).length, 60)
  t.ok(statuses.includes(503))
  const late = await logOut(sidecar, await mint(key))
  t.match(late, { status: 503, body: /"ServiceNotReady"/ })
  const seconds = Number(late.headers['retry-after'])
  t.ok(seconds > 0 && seconds <= 60, `${seconds}`)
  t.equal((await logOut(sidecar, await mint(key, 'a1'))).status, 204)
})

t.test('while the database is away, logouts are 503 and do not count, and tokens stay valid', async (t) => {
  const { key, flags } = await prepare(t)
  const sidecar = await startSidecar(t, { settings: flags })
  const token = await mint(key)
  await kill()
  t.teardown(start)
  for (let times = 0; times < 61; times++) {
    t.match(await logOut(sidecar, token), { status: 503, headers: { 'retry-after': '1' } })
  }
  t.equal(await get(sidecar, token), 200)
  await start()
  await eventually(async () => (await logOut(sidecar, token)).status === 204, 'the database')
  t.equal(await get(sidecar, token), 400)
})

t.test('a logout that is written and cannot be read back is a 503, and is active once it can', async (t) => {
  const { key, flags, database, role } = await prepare(t)
  const sidecar = await startSidecar(t, { settings: flags })
  const token = await mint(key)
  const mayRead = (how: string) => database.sql(`${how} ${role}`)
  await mayRead('REVOKE SELECT ON storage_auth.history FROM')
  t.match(await logOut(sidecar, token), { status: 503, body: /"ServiceNotReady"/ })
  t.match(await database.sql('SELECT count(*)::int FROM storage_auth.revocations'), [{ count: 1 }])
  t.equal(await get(sidecar, token), 200, 'by the last state')
  await mayRead('GRANT SELECT ON storage_auth.history TO')
  await eventually(async () => (await get(sidecar, token)) === 400, 'the next read')
})

t.test('a row says when its token ends, and a later logout removes it then', async (t) => {
  const { key, flags, database } = await prepare(t)
  const sidecar = await startSidecar(t, { settings: { ...flags, 'token-clock-tolerance-seconds': '2' } })
  const short = await mint(key, 'a0', 60, 'short')
  t.equal((await logOut(sidecar, short)).status, 204)
  const { exp = 0 } = decodeJwt(short)
  const rows = () =>
    database.sql('SELECT jti, extract(epoch FROM expires_at)::int AS until FROM storage_auth.revocations')
  t.same(await rows(), [{ jti: 'short', until: exp + 2 }], 'with the clock tolerance')
  await database.sql("UPDATE storage_auth.revocations SET expires_at = now() - interval '1 second'")
  t.equal((await logOut(sidecar, await mint(key, 'a0', 60, 'next'))).status, 204)
  t.match(await rows(), [{ jti: 'next' }])
})

t.test('1,000 logouts cost cached tokens of others no entry', async (t) => {
  const { key, flags, database } = await prepare(t, 'HS256')
  const sidecar = await startSidecar(t, { settings: flags })
  const others = await Promise.all(Array.from({ length: 200 }, () => mint(key, 'a19')))
  const leaving = await Promise.all(Array.from({ length: 100 }, (_, at) => mint(key, `a${at % 19}`)))
  const each = async (tokens: readonly string[], call: (token: string) => Promise<number>) => {
    const statuses = new Map<number, number>()
    const left = [...tokens]
    const work = async () => {
      let token = left.pop()
      while (token !== undefined) {
        const status = await call(token)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
        token = left.pop()
      }
    }
    await Promise.all(Array.from({ length: 16 }, work))
    return Object.fromEntries(statuses)
  }
  t.same(await each([...others, ...leaving], (token) => get(sidecar, token)), { 200: 300 })
  const hits = 'auth_sidecar_token_cache_hits_total'
  const misses = 'auth_sidecar_token_cache_misses_total'
  const before = { hits: await sidecar.metric(hits), misses: await sidecar.metric(misses) }
  // Most are rows as other sidecars write them; the logouts here that follow read them.
  const elsewhere = `INSERT INTO storage_auth.revocations (jti, expires_at)
    SELECT $1 || '-' || at, now() + interval '1 hour' FROM generate_series(1, 90) AS at`
  for (let from = 0; from < 100; from += 10) {
    await database.sql(elsewhere, [`elsewhere-${from}`])
    const tokens = leaving.slice(from, from + 10)
    t.same(await each(tokens, async (token) => (await logOut(sidecar, token)).status), { 204: 10 })
  }
  t.same(await each(others, (token) => get(sidecar, token)), { 200: 200 })
  t.equal(await sidecar.metric(misses), before.misses)
  t.equal(await sidecar.metric(hits), before.hits + 300)
  t.same(await each(leaving, (token) => get(sidecar, token)), { 400: 100 })
})

t.test('a link ends by its id, with its token and with its account, on every sidecar', async (t) => {
  const { key, flags, database } = await prepare(t)
  const settings = { ...flags, 'contract-logout': 'false', 'links-enabled': 'true' }
  const here = await startSidecar(t, { settings })
  const there = await startSidecar(t, { settings })
  const maker = await mint(key)
  const parent = await mint(key, 'a0', 3600, 'parent')
  const other = await mint(key, 'a1')
  const make = (token: string) => sidecarClient(here).link(token, 'GET', '/o')
  const one = await make(maker)
  const two = await make(maker)
  const ofParent = await make(parent)
  const ofOther = await make(other)
  const statuses = async (sidecar: TestSidecar) => {
    const links = [one, two, ofParent, ofOther]
    return Promise.all(links.map(async ({ url }) => (await ask(sidecar, 'GET', url)).status))
  }
  for (const sidecar of [here, there]) {
    t.same(await statuses(sidecar), [200, 200, 200, 200])
  }
  const end = (id: string, token: string) => ask(here, 'DELETE', `/v2/auth/links/${id}`, token)
  t.match(await end(one.linkId, other), { status: 403, body: /"AccessDenied"/ }, 'of another account')
  for (const id of ['', 'x', `x/${one.linkId}`, `v2/auth/links/${one.linkId}`, `${one.linkId}x`]) {
    t.match(await end(id, maker), { status: 400, body: /"InvalidArgument"/ }, JSON.stringify(id))
  }
  t.match(await end(one.linkId, `${maker}x`), { status: 400, body: /"InvalidToken"/ })
  t.match(await end(one.linkId, maker), { status: 204, body: '' })
  t.same(await statuses(here), [400, 200, 200, 200], 'refused at once')
  t.equal((await end(one.linkId, maker)).status, 204, 'again')
  t.match(await ask(here, 'GET', `/v2/auth/links/${one.linkId}`, maker), {
    status: 405,
    headers: { allow: 'DELETE' },
  })
  await database.sql("INSERT INTO storage_auth.revocations (jti) VALUES ('parent')")
  for (const sidecar of [here, there]) {
    await eventually(
      async () => (await statuses(sidecar)).join() === '400,200,400,200',
      'the two to be refused',
    )
  }
  await database.sql("UPDATE storage_auth.credentials SET disabled = true WHERE account_id = 'a0'")
  for (const sidecar of [here, there]) {
    await eventually(
      async () => (await statuses(sidecar)).join() === '400,400,400,200',
      'all of a0 to be refused',
    )
  }
  const { linkId } = ofOther
  t.match(here.log.filter(({ event }) => /^link_/.test(String(event))).at(-1), {
    event: 'link_ended',
    outcome: 'ok',
    account: 'a0',
    accessKey: 'AK',
    linkId: one.linkId,
    requestId: String,
  })
  t.match(
    here.log.find((line) => line['linkId'] === linkId),
    { event: 'link_created', account: 'a1' },
  )
})
