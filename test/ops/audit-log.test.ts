import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { credentialsCommand } from '../../src/cli/credentials.ts'
import type { AuditField } from '../../src/ops/audit-log.ts'
import { traceIdOf } from '../../src/ops/traceparent.ts'
import { eventually } from '../support/eventually.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { runCommand } from '../support/run-command.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'

const PAGE = 'docs/operations.md'
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const TRACEPARENT = `00-${TRACE}-00f067aa0ba902b7-01`

const RELOADS = [
  'reload credentials failed',
  'reload credentials ok',
  'reload keys ok',
  'reload keys ok',
  'reload revocations ok',
  'reload revocations ok',
]

const auditLines = ({ log }: TestSidecar) => log.filter(({ msg }) => msg === 'audit')

/** A sidecar at which a credential logged in, failed and deleted an object, and whose files were reloaded. */
async function audited(
  t: Parameters<typeof startSidecar>[0] & Parameters<typeof recordingUpstream>[0],
  settings = {},
) {
  const upstream = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, settings })
  const [good = { accountId: '', accessKey: '', secret: '' }] = sidecar.logins
  const at = `http://127.0.0.1:${sidecar.port}`
  const login = (fields: object, headers = {}) =>
    fetch(`${at}/v2/auth/token?q=canary`, {
      method: 'POST',
      body: JSON.stringify({ ...good, ...fields }),
      headers: { 'Content-Type': 'application/json', ...headers },
    })
  const { token } = JSON.parse(
    await (await login({}, { traceparent: TRACEPARENT, 'X-Request-Id': 'mine-1' })).text(),
  )
  await login({ secret: 'canary' })
  await login({ accessKey: 'canary' })
  await login({ accountId: 'canary', accessKey: 'canary' })
  await login({ secret: 7 })
  await fetch(`${at}/bucket/object`, {
    method: 'DELETE',
    headers: { Authorization: `Bearer ${token}`, traceparent: TRACEPARENT },
  })
  await sidecar.app.reload()
  writeFileSync(sidecar.credentialsFile, 'rubbish')
  await sidecar.app.reload()
  return { upstream, sidecar, good, token }
}

t.test('logins and reloads have an audit line each, without what a client made up', async (t) => {
  const { sidecar, upstream, good, token } = await audited(t)
  const { accountId: account, accessKey } = good
  const [login, ...others] = auditLines(sidecar)
  const { jti: tokenId } = JSON.parse(Buffer.from(token.split('.')[1], 'base64url').toString())
  const { time, level, msg, ...fields } = login ?? {}
  const client = '127.0.0.1'
  t.strictSame(fields, {
    event: 'login',
    outcome: 'ok',
    account,
    accessKey,
    tokenId,
    client,
    requestId: 'mine-1',
    traceId: TRACE,
  })
  const failed = { event: 'login_failed', reason: 'rejected', client, requestId: /^[\w-]{36}$/ }
  t.match(others.slice(0, 4), [
    { ...failed, account, accessKey },
    { ...failed, account, accessKey: undefined },
    { ...failed, account: undefined, accessKey: undefined },
    { ...failed, reason: 'invalid' },
  ])
  const reloads = others.slice(4).map(({ event, subject, outcome }) => `${event} ${subject} ${outcome}`)
  t.strictSame(reloads.sort(), RELOADS)
  t.notMatch(JSON.stringify(auditLines(sidecar)), new RegExp(`canary|${good.secret}|${token}`))
  const [deletion] = sidecar.log.filter(({ method }) => method === 'DELETE')
  t.match(deletion, { tokenId, traceId: TRACE })
  t.ok(upstream.requests.at(-1)?.rawHeaders.includes(TRACEPARENT), 'passed on unchanged')
})

t.test('a login with the secret before the last rotation has its mark and its count', async (t) => {
  const { url } = await recordingUpstream(t)
  const sidecar = await startSidecar(t, { upstreamUrl: url })
  const [former = { accountId: '', accessKey: '', secret: '' }] = sidecar.logins
  const name = ['--account', former.accountId, '--access-key', former.accessKey]
  const rotated = await runCommand(credentialsCommand, ['rotate', '--file', sidecar.credentialsFile, ...name])
  const { secret } = JSON.parse(rotated.stdout)
  const logIn = async (login: object) => {
    const endpoint = `http://127.0.0.1:${sidecar.port}/v2/auth/token`
    const headers = { 'Content-Type': 'application/json' }
    return (await fetch(endpoint, { method: 'POST', body: JSON.stringify(login), headers })).status
  }
  await eventually(async () => (await logIn({ ...former, secret })) === 200, 'the new secret')
  t.equal(await logIn(former), 200)
  const logins = auditLines(sidecar).filter(({ event }) => event === 'login')
  t.same(
    logins.map((line) => line['secretUsed']),
    [undefined, 'previous'],
  )
  t.equal(await sidecar.metric('auth_sidecar_logins_with_previous_secret_total'), 1)
})

t.test('with log.audit: false there are none', async (t) => {
  const { sidecar } = await audited(t, { 'log-audit': 'false' })
  t.strictSame(auditLines(sidecar), [])
})

t.test('the page has every field of an audit line', (t) => {
  const all: Readonly<Record<AuditField, true>> = {
    event: true,
    outcome: true,
    reason: true,
    account: true,
    accessKey: true,
    tokenId: true,
    method: true,
    secretUsed: true,
    target: true,
    linkId: true,
    subject: true,
    client: true,
    requestId: true,
    traceId: true,
  }
  const documented = tableUnder(PAGE, '### Audit').flatMap(({ field }) => codeIn(field))
  t.strictSame(documented.sort(), Object.keys(all).sort())
  t.end()
})

t.test('a trace id is that of one valid traceparent', (t) => {
  for (const [traceparent, expected] of [
    [TRACEPARENT, TRACE],
    [`01-${TRACE}-00f067aa0ba902b7-01-more`, TRACE],
    [undefined, undefined],
    ['', undefined],
    [`${TRACEPARENT}, ${TRACEPARENT}`, undefined],
    [`01-${TRACE}-00f067aa0ba902b7-01-x, ${TRACEPARENT}`, undefined],
    [`${TRACEPARENT}-more`, undefined],
    [`ff-${TRACE}-00f067aa0ba902b7-01`, undefined],
    [TRACEPARENT.toUpperCase(), undefined],
    [`00-${'0'.repeat(32)}-00f067aa0ba902b7-01`, undefined],
    [`00-${TRACE}-${'0'.repeat(16)}-01`, undefined],
    [`00-${TRACE}-00f067aa0ba902b7-1`, undefined],
    [`00-${TRACE}-00f067aa0ba902b7-011`, undefined],
  ] as const) {
    t.equal(traceIdOf(traceparent), expected, traceparent ?? 'none')
  }
  t.end()
})

const hasJq = spawnSync('jq', ['--version']).status === 0
t.test('the jq recipes of the page answer who did what', { skip: !hasJq && 'without jq' }, async (t) => {
  const { sidecar, good, token } = await audited(t, { 'links-enabled': 'true' })
  const at = `http://127.0.0.1:${sidecar.port}`
  const made = await fetch(`${at}/v2/auth/links`, {
    method: 'POST',
    body: '{"method":"GET","target":"/shared"}',
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
  })
  const { url, linkId } = JSON.parse(await made.text())
  await fetch(at + url)
  await eventually(() => sidecar.log.some(({ event }) => event === 'link_used'), 'the line of its use')
  const revoked = await sidecar.mint({ claims: { client_id: 'removed', jti: 'token-1' } })
  await fetch(`${at}/o`, { headers: { Authorization: `Bearer ${revoked}` } })
  await eventually(() => sidecar.log.some(({ reason }) => reason === 'revoked'), 'the line of the refusal')
  const log = `no JSON\n${sidecar.log.map((line) => JSON.stringify(line)).join('\n')}\n`
  const [tokenId = ''] = auditLines(sidecar).map((line) => String(line['tokenId']))
  const [, section = ''] = readFileSync(PAGE, 'utf8').split('### Audit\n')
  const recipes = [...section.matchAll(/^jq -cR (?:--arg (\w+) \S+ )?'(.*)' log$/gm)]
  const values = new Map([
    ['link', linkId],
    ['account', good.accountId],
  ])
  const answers = recipes.map(([, name, program = '']) => {
    const args = name === undefined ? [] : ['--arg', name, values.get(name)]
    const { stdout, stderr } = spawnSync('jq', ['-cR', ...args, program], { input: log, encoding: 'utf8' })
    t.equal(stderr, '')
    return stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
  })
  const { accountId: account, accessKey } = good
  const client = '127.0.0.1'
  const reloads: [string, string, string][] = answers.splice(3, 1)[0] ?? []
  t.strictSame(reloads.map(([, subject, outcome]) => `reload ${subject} ${outcome}`).sort(), RELOADS)
  t.match(answers, [
    [[String, account, accessKey, client]],
    [
      [String, account, 'rejected', client],
      [String, account, 'rejected', client],
      [String, null, 'rejected', client],
      [String, null, 'invalid', client],
    ],
    [[String, account, tokenId, 200]],
    [
      [String, 'link_created', account, client],
      [String, 'link_used', account, client],
    ],
    [[String, 'token-1', 'removed', client]],
  ])
})
