import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { UsageFailure } from '../../src/cli/command-io.ts'
import { loadKeys, loadVerdictSources } from '../../src/cli/verdict-sources.ts'
import { accepted } from '../config/support.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { makeKeyDirectory } from '../support/keys.ts'
import { startPostgres } from '../support/postgres.ts'

const token = { tokenId: 'token-1', accountId: 'acme', accessKey: 'AK0', issuedAt: 1 }

/** Settings as flags, and what is loaded by them. */
async function load(flags: Record<string, string>, waitMs = 5000) {
  const { config } = accepted({ flags })
  const warnings: string[] = []
  const warn = (warning: string) => void warnings.push(warning)
  return { ...(await loadVerdictSources(config, { now: Date.now, warn, waitMs })), warnings }
}

/** Answers every request with the same bytes. */
async function serve(t: { teardown(close: () => void): void }, body: string) {
  const server = createServer((_req, res) => res.end(body))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks.json`
}

t.test('a verdict rests on keys, credentials and revocations from files', async (t) => {
  const key = await makeKeyDirectory(t)
  writeFileSync(join(key.directory, 'note.txt'), '')
  const { file } = await makeCredentialsFile(t)
  const revocations = join(key.directory, '.revocations.yaml')
  writeFileSync(revocations, 'revocations:\n- jti: token-1\n')
  const flags = { '--keys-directory': key.directory, '--credentials-file': file }
  const sources = await load({ ...flags, '--revocations-file': revocations })
  t.same([...sources.ring.verification.keys()], [key.kid])
  t.same(sources.standing?.('acme', 'AK0').active, true)
  t.same(sources.standing?.('acme', 'AK1').active, false)
  t.equal(sources.isRevoked(token), true)
  t.equal(sources.isRevoked({ ...token, tokenId: 'token-2' }), false)
  t.match(sources.warnings, [/note\.txt: ignored/])
  t.equal((await load(flags)).isRevoked(token), false, 'no file of revocations need be there')

  writeFileSync(revocations, 'revocations: canary')
  await t.rejects(load({ ...flags, '--revocations-file': revocations }), UsageFailure)
  await t.rejects(load({ ...flags, '--credentials-file': revocations }), UsageFailure)
  await t.rejects(load({ ...flags, '--keys-directory': `${key.directory}/none` }), UsageFailure)
})

t.test('a verdict rests on the keys of another issuer, without credentials', async (t) => {
  const key = await makeKeyDirectory(t)
  const url = await serve(t, JSON.stringify({ keys: [key.publicJwk, {}] }))
  const sources = await load({ '--keys-jwks-url': url })
  t.same([...sources.ring.verification.keys()], [key.kid])
  t.notOk('standing' in sources)
  t.equal(sources.isRevoked(token), false)
  t.match(sources.warnings, [/keys\[1\] is ignored: alg must be/])
  await t.rejects(
    loadKeys(accepted({ flags: { '--keys-jwks-url': url } }).config, { warn: () => {} }),
    new UsageFailure('keys.directory is needed: with keys.jwksUrl no tokens are issued'),
  )
})

t.test(
  'an issuer that is away, silent or answers nonsense is a failure and no mistake of usage',
  async (t) => {
    const silent = createTcpServer()
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    t.teardown(() => silent.close())
    const { port } = silent.address() as AddressInfo
    for (const [url, message] of [
      ['http://127.0.0.1:1/', /^keys\.jwksUrl: the JWK Set cannot be fetched/],
      [`http://127.0.0.1:${port}/`, /did not arrive within 0\.05 s/],
      [await serve(t, '<html>'), /the JWK Set is not a JWK Set/],
    ] as const) {
      await t.rejects(load({ '--keys-jwks-url': url }, 50), { name: 'CommandFailure', message })
    }
  },
)

t.test('a verdict rests on credentials and revocations from a database', async (t) => {
  const { directory } = await makeKeyDirectory(t)
  const flags = { '--keys-directory': directory }
  const urlFile = join(directory, '.url')
  const fromDatabase = (url: string, waitMs?: number) => {
    writeFileSync(urlFile, url)
    return load({ ...flags, '--credentials-postgres-url-file': urlFile }, waitMs)
  }
  await t.rejects(fromDatabase(''), UsageFailure)
  const away = fromDatabase('postgres://u:canary@127.0.0.1:1/x', 50)
  await t.rejects(away, { name: 'CommandFailure', message: /^((?!canary).)+$/s })

  const server = await startPostgres(t)
  if (server === undefined) return t.comment('no PostgreSQL server can be had on this machine')
  const database = await server.createDatabase('tables')
  await database.sql(
    "INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash) VALUES ('acme', 'AK0', $1)",
    [`$sha256$${'A'.repeat(43)}`],
  )
  await database.sql("INSERT INTO storage_auth.revocations (account_id) VALUES ('former')")
  const sources = await fromDatabase(database.url)
  t.same(sources.standing?.('acme', 'AK0').active, true)
  t.equal(sources.isRevoked(token), false)
  t.equal(sources.isRevoked({ ...token, accountId: 'former' }), true)
})
