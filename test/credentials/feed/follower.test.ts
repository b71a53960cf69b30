import { writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { FeedFollower, type FollowerOptions } from '../../../src/credentials/feed/follower.ts'
import { eventually, inTime } from '../../support/eventually.ts'
import { type HubState, startHub, type TestHub, wholeDocument } from '../../support/feed-hub.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const AK = { accountId: 'acme', accessKey: 'AK' }
const OTHER = { accountId: 'acme', accessKey: 'other' }
const STATE: HubState = { credentials: [AK, OTHER], revocations: [{ jti: 'j1' }] }

/** A follower with a clock that stands still. Its pauses end at once, and are noted. */
async function follow(t: Test, { url }: Pick<TestHub, 'url'>, changed: Partial<FollowerOptions> = {}) {
  const clock = { ms: Date.UTC(2026) }
  const pauses: number[] = []
  const lines: { level: string; message: string; fields: Record<string, unknown> }[] = []
  const to = (level: string) => (fields: Record<string, unknown>, message: string) => {
    lines.push({ level, message, fields })
  }
  const tokenFile = join(await temporaryDirectory(t), 'token')
  writeFileSync(tokenFile, 'first-token\n')
  const reloads: string[] = []
  const changes: string[] = []
  const follower = new FeedFollower({
    url,
    tokenFile,
    log: { info: to('info'), warn: to('warn'), error: to('error') } as FollowerOptions['log'],
    now: () => clock.ms,
    onReload: (result) => reloads.push(result),
    random: () => 1,
    pause: async (ms) => {
      pauses.push(ms)
      await new Promise((resolve) => setTimeout(resolve, Math.min(ms, 2)))
    },
    ...changed,
  })
  follower.subscribe((subject) => changes.push(subject))
  follower.start()
  t.teardown(() => follower.stop())
  const isActive = (name = AK) => follower.lookups.credentialStatus(name.accountId, name.accessKey).active
  const problems = () => lines.flatMap(({ fields }) => fields['problem'] ?? [])
  const isRevoked = (tokenId: string) =>
    follower.revocations().isRevoked({ ...AK, tokenId, issuedAtSeconds: 1000 }, 'issuer')
  return { follower, clock, pauses, lines, reloads, changes, tokenFile, isActive, isRevoked, problems }
}

async function started(t: Test, state = STATE, changed: Partial<FollowerOptions> = {}) {
  const hub = await startHub(t, state)
  const followed = await follow(t, hub, changed)
  t.same(await inTime(followed.follower.whenLoaded, 'the first state'), {
    ok: true,
    value: true,
    warnings: [],
  })
  return { hub, ...followed }
}

t.test('a follower has the whole state, then each change, and waits for the next one', async (t) => {
  const { hub, follower, isActive, isRevoked, changes, reloads } = await started(t)
  t.equal(isActive(), true)
  t.equal(isActive({ accountId: 'acme', accessKey: 'unknown' }), false)
  t.equal(follower.countActive(), 2)
  t.equal(isRevoked('j1'), true)
  t.equal(isRevoked('j2'), false)
  hub.publish({ credentials: [OTHER], revocations: [{ jti: 'j1' }] })
  await eventually(() => !isActive(), 'the credential to be disabled')
  hub.publish({ credentials: [OTHER], revocations: [{ jti: 'j1' }, { jti: 'j2' }] })
  await eventually(() => isRevoked('j2'), 'the revocation')
  hub.publish({ credentials: [OTHER], revocations: [{ jti: 'j2' }] })
  await eventually(() => !isRevoked('j1'), 'the end of a revocation')
  await hub.until(({ since }) => since === 'v4')
  t.same(
    hub.requests.map(({ since, waits, connection }) => [since, waits, connection]),
    [
      [null, false, 0],
      ['v1', true, 0],
      ['v2', true, 0],
      ['v3', true, 0],
      ['v4', true, 0],
    ],
  )
  t.equal(hub.requests[0]?.authorization, 'Bearer first-token')
  t.same(changes, ['credentials', 'revocations', 'revocations'])
  t.same(reloads, ['ok', 'ok'], 'a revocation of a token alone is no reload')
  t.match(follower.condition(), { name: 'credentials', ok: true, state: 'current' })
})

t.test('a credential ends at its time without a change', async (t) => {
  const { clock, isActive, follower } = await started(t, {
    credentials: [{ ...AK, expiresAt: '2026-06-01T00:00:00Z', scope: 'storage.read:/' }],
  })
  t.match(follower.lookups.credentialStatus('acme', 'AK'), {
    active: true,
    endsAtMs: Date.UTC(2026, 5),
    scope: 'storage.read:/',
  })
  clock.ms = Date.UTC(2026, 5)
  t.equal(isActive(), false)
  t.match(follower.lookups.credentialStatus('acme', 'AK'), { exists: true })
  t.equal(follower.countActive(), 0)
})

t.test('the token is read anew for each request, and a version may be any text', async (t) => {
  const { hub, tokenFile } = await started(t)
  await hub.until(({ since }) => since === 'v1')
  writeFileSync(tokenFile, 'second-token')
  const version = hub.publish({ credentials: [AK] }, ' +&=%/?#"ü\n\u{1f600}')
  await hub.until(({ since }) => since === version)
  t.equal(hub.requests.at(-1)?.authorization, 'Bearer second-token')
})

t.test('versions are never compared: a restored database goes back', async (t) => {
  const { hub, isActive, follower } = await started(t)
  hub.publish({ credentials: [OTHER] }, '900')
  await eventually(() => !isActive(), 'version 900')
  hub.publish({ credentials: [AK] }, '7')
  await eventually(() => isActive(), 'version 7')
  t.equal(follower.state()?.version, '7')
})

const DEEP = `{"format":1,"x":${'['.repeat(60_000)}`
const text =
  (body: string | Buffer, headers: Record<string, string> = {}) =>
  (res: ServerResponse) => {
    res.writeHead(200, { 'content-type': 'application/json', ...headers }).end(body)
  }
const gzip = { 'content-encoding': 'gzip' }
const good = JSON.stringify(wholeDocument('v9', { credentials: [] }))

const BAD_ANSWERS: readonly (readonly [what: string, respond: (res: ServerResponse) => void, RegExp])[] = [
  ['204', (res) => res.writeHead(204).end(), /status 204/],
  ['a redirect', (res) => res.writeHead(302, { location: '/other' }).end(), /status 302/],
  ['401', (res) => res.writeHead(401).end(), /status 401: the hub refuses the token/],
  ['429', (res) => res.writeHead(429).end(), /status 429/],
  ['500', (res) => res.writeHead(500).end('no'), /status 500/],
  ['another content type', text(good, { 'content-type': 'text/html' }), /is not application\/json/],
  ['another one', text(good, { 'content-type': 'application/jsonp' }), /is not application\/json/],
  ['an unknown coding', text(good, { 'content-encoding': 'br' }), /unknown Content-Encoding/],
  ['an empty body', text(''), /is no JSON/],
  ['a body that is cut', text(good.slice(0, -2)), /is no JSON/],
  ['another format', text(good.replace('"format":1', '"format":2')), /another format/],
  ['a deep one', text(DEEP), /nested too deeply/],
  ['brackets alone', text(good.replace('[]', `[${'{},'.repeat(10_000)}{}]`)), /more lists and maps/],
  ['no UTF-8', text(Buffer.from(good.replace('v9', '\u00ff'), 'latin1')), /is not UTF-8/],
  ['a repeated credential', text(JSON.stringify(wholeDocument('v9', { credentials: [AK, AK] }))), /repeats/],
  ['changes of another version', text(good.replace('null', '"v7"')), /another version/],
  ['no gzip', text(good, gzip), /cannot be unzipped/],
  ['gzip that is cut', text(gzipSync(good).subarray(0, -9), gzip), /cannot be unzipped/],
  ['gzip that expands 1,000 times', text(gzipSync(Buffer.alloc(80_000_000)), gzip), /larger than/],
  [
    'an endless one',
    (res) => {
      res.writeHead(200, { 'content-type': 'application/json' })
      const more = () => {
        while (!res.destroyed && res.write('[{"a":"b"},'.repeat(100_000))) {}
      }
      res.on('drain', more)
      more()
    },
    /larger than/,
  ],
  ['a reset', (res) => res.socket?.destroy(), /cannot be fetched: ECONNRESET/],
  [
    'a state in two chunks and a FIN',
    (res) => {
      res.writeHead(200, { 'content-type': 'application/json', connection: 'close' })
      res.flushHeaders()
      res.write(good.slice(0, 40), () => res.socket?.end())
    },
    /cannot be fetched: ECONNRESET/,
  ],
]

t.test('a bad answer changes nothing, is reported once, and is followed by pauses', async (t) => {
  for (const [what, respond, problem] of BAD_ANSWERS) {
    await t.test(what, async (t) => {
      const { hub, follower, pauses, isActive, isRevoked, problems, reloads, changes } = await started(t)
      await hub.until(({ since }) => since === 'v1')
      const before = hub.requests.length
      hub.respond = respond
      hub.stop()
      await hub.start()
      await hub.until((_request, at) => at >= before + 3)
      t.equal(isActive(), true)
      t.equal(isRevoked('j1'), true)
      t.match(problems().at(-1), problem)
      t.ok(problems().length <= 2, 'the lost connection and the bad answer')
      t.match(follower.condition(), { ok: true, state: 'feed failing, last state active' })
      t.ok(
        hub.requests.slice(before).every(({ waits }) => !waits),
        'it asks without waiting',
      )
      t.ok(
        pauses.slice(-2).every((ms) => ms >= 2000 && ms <= 10_000),
        'pauses grow',
      )
      t.same(changes, [])
      t.equal(reloads.at(-1), 'failed')
      hub.respond = undefined
      hub.publish({ credentials: [OTHER] })
      await eventually(() => !isActive(), 'the next good state')
      await eventually(() => follower.condition().state === 'current', 'the end of the problem')
      t.equal(reloads.at(-1), 'ok')
    })
  }
})

t.test('what is malformed is asked for as a whole', async (t) => {
  const { hub } = await started(t)
  hub.respond = (res, { since }) => {
    if (since === null) {
      hub.respond = undefined
      hub.send(res, wholeDocument('v1', STATE))
      return
    }
    hub.send(res, { ...wholeDocument('v2', STATE), from: 'another' })
  }
  hub.publish({ credentials: [AK] })
  await hub.until(({ since }, at) => since === null && at > 0)
})

t.test('a reconnection before the first state is no state', async (t) => {
  const hub = await startHub(t, STATE)
  hub.respond = () => {}
  const { follower, lines } = await follow(t, hub)
  let isLoaded = false
  follower.whenLoaded.then(() => {
    isLoaded = true
  })
  await hub.until(() => true)
  follower.reconnect()
  await hub.until((_request, at) => at > 0)
  t.equal(isLoaded, false)
  hub.respond = undefined
  follower.reconnect()
  await inTime(follower.whenLoaded, 'the first state')
  t.equal(follower.state()?.size, 2)
  t.same(
    lines.map(({ message }) => message),
    ['new credentials active'],
  )
})

t.test('after a lost connection, only what has changed is asked for', async (t) => {
  const { hub, isActive, lines, reloads, follower } = await started(t)
  await hub.until(({ since }) => since === 'v1')
  hub.stop()
  await hub.start()
  await hub.until(({ since, waits }) => since === 'v1' && !waits)
  hub.publish({ credentials: [OTHER] })
  await eventually(() => !isActive(), 'the change')
  t.equal(hub.requests.filter(({ since }) => since === null).length, 1)
  t.equal(follower.condition().state, 'current')
  t.same(
    lines.map(({ message }) => message),
    ['new credentials active', 'new credentials active'],
    'a hub that restarts is no problem',
  )
  t.same(reloads, ['ok', 'ok'])
})

t.test('pauses are random, grow to ten seconds, and end with a good answer', async (t) => {
  const { hub, pauses } = await started(t)
  await hub.until(({ since }) => since === 'v1')
  hub.respond = (res) => res.writeHead(503).end()
  const before = hub.requests.length
  hub.stop()
  await hub.start()
  await hub.until((_request, at) => at > before + 6)
  hub.respond = undefined
  await hub.until(({ waits }, at) => waits && at > before + 6)
  const grown = pauses.filter((ms) => ms > 0)
  t.same(grown.slice(0, 5), [1000, 2000, 4000, 8000, 10_000])
  t.equal(pauses.at(-1), 0)
})

t.test('a hub that does not wait, or two that disagree, are not asked without a pause', async (t) => {
  const { hub, pauses } = await started(t)
  hub.respond = (res) => res.writeHead(304).end()
  hub.stop()
  await hub.start()
  await hub.until((_request, at) => at > 8)
  t.ok(pauses.slice(-3).every((ms) => ms >= 2000))
  let sent = 0
  hub.respond = (res) => {
    sent++
    hub.send(res, wholeDocument(`of hub ${sent % 2}`, STATE))
  }
  await eventually(() => sent > 8, 'whole states of both')
  t.ok(pauses.slice(-3).every((ms) => ms >= 2000))
})

t.test('hubs that disagree, of which one knows the other, are asked after pauses', async (t) => {
  const { hub, pauses } = await started(t)
  let wholes = 0
  const none = { set: [], removed: [] }
  hub.respond = (res, { since }) => {
    if (since === 'old') {
      hub.send(res, { format: 1, version: 'new', from: since, credentials: none, revocations: none })
    } else {
      wholes++
      hub.send(res, wholeDocument('old', STATE))
    }
  }
  hub.stop()
  await hub.start()
  await eventually(() => wholes > 6, 'whole states of one')
  t.ok(pauses.slice(-4).filter((ms) => ms >= 2000).length >= 2, 'after each whole state')
})

t.test('a hub that always has changes is asked ten times a second', async (t) => {
  const { hub, pauses } = await started(t)
  let sent = 0
  const none = { set: [], removed: [] }
  hub.respond = (res, { since }) => {
    sent++
    hub.send(res, { format: 1, version: `v${sent}`, from: since, credentials: none, revocations: none })
  }
  hub.stop()
  await hub.start()
  await eventually(() => sent > 8, 'changes')
  t.same(pauses.slice(-3), [100, 100, 100])
})

t.test('a state that lost nine tenths of the credentials is accepted once it has stayed so', async (t) => {
  const many = Array.from({ length: 21 }, (_, at) => ({ accountId: 'acme', accessKey: `AK${at}` }))
  const { hub, clock, follower, problems } = await started(t, { credentials: many })
  hub.forget()
  hub.publish({ credentials: many.slice(0, 2) })
  hub.forget()
  hub.stop()
  await hub.start()
  await eventually(() => problems().some((text) => /lost nine tenths/.test(String(text))), 'the problem')
  t.equal(follower.countActive(), 21)
  clock.ms += 59_000
  const before = hub.requests.length
  await hub.until((_request, at) => at > before + 1)
  t.equal(follower.countActive(), 21)
  clock.ms += 1000
  await eventually(() => follower.countActive() === 2, 'the state that has stayed so')
  t.equal(follower.condition().state, 'current')
})

t.test('a state that lost fewer is followed at once, and so is a loss by changes', async (t) => {
  const many = Array.from({ length: 20 }, (_, at) => ({ accountId: 'acme', accessKey: `AK${at}` }))
  const { hub, follower } = await started(t, { credentials: many })
  hub.publish({ credentials: many.slice(0, 2) })
  hub.forget()
  hub.stop()
  await hub.start()
  await eventually(() => follower.countActive() === 2, 'a whole state with a tenth')
  hub.publish({ credentials: [] })
  await eventually(() => follower.countActive() === 0, 'changes that remove all')
})

t.test('an operator who asks for a reload accepts what is there', async (t) => {
  const many = Array.from({ length: 20 }, (_, at) => ({ accountId: 'acme', accessKey: `AK${at}` }))
  const { hub, follower } = await started(t, { credentials: many })
  await hub.until(({ waits }) => waits)
  hub.respond = (res, { since }) => {
    if (since === null) {
      hub.send(res, wholeDocument('other', { credentials: [] }))
    }
  }
  await inTime(follower.reload(), 'the reload')
  t.equal(follower.countActive(), 0)
  t.equal(hub.requests.filter(({ since }) => since === null).length, 2)
})

t.test('the age counts from the last good answer, and a state that is too old is said once', async (t) => {
  const { hub, clock, follower, changes, lines } = await started(t, STATE, { maxStaleSeconds: 60 })
  t.ok(Number(follower.ageSeconds()) < 30)
  t.equal(follower.isTooOld(), false)
  hub.stop()
  clock.ms += 61_000
  t.equal(follower.isTooOld(), true)
  await eventually(() => changes.includes('credentials'), 'the end of what is cached')
  t.match(follower.condition(), { ok: true, state: 'feed failing, state too old' })
  t.equal(lines.filter(({ message }) => /too old/.test(message)).length, 1)
  clock.ms -= 3_600_000
  await hub.start()
  await eventually(() => Number(follower.ageSeconds()) < 30 && !follower.isTooOld(), 'a state that is new')
})

t.test('the age includes the time for which the hub has not reached its database', async (t) => {
  const hub = await startHub(t, STATE)
  hub.respond = (res, { since }) => {
    if (since === null) {
      hub.send(res, wholeDocument('v1', STATE), { age: '70' })
    }
  }
  const { follower } = await follow(t, hub, { maxStaleSeconds: 60 })
  await inTime(follower.whenLoaded, 'the first state')
  t.ok(Number(follower.ageSeconds()) >= 70)
  t.equal(follower.isTooOld(), true)
})

t.test('a hub that does not reach its database is left after a wait, for another one', async (t) => {
  const { hub } = await started(t)
  await hub.until(({ waits }) => waits)
  hub.respond = (res) => res.writeHead(304, { age: '7' }).end()
  hub.stop()
  await hub.start()
  const before = hub.requests.length
  await hub.until(({ waits }, at) => waits && at > before + 3)
  const unasked = hub.requests.slice(before).filter(({ waits }) => !waits)
  t.ok(unasked.length >= 2, 'the first request of a connection does not wait')
  t.equal(new Set(unasked.map(({ connection }) => connection)).size, unasked.length)
})

t.test('401 for an hour at the start is waited out, and said once', async (t) => {
  const hub = await startHub(t, STATE)
  hub.respond = (res) => res.writeHead(401).end()
  const { follower, clock, lines, isActive } = await follow(t, hub)
  await hub.until((_request, at) => at > 5)
  clock.ms += 3_600_000
  t.equal(follower.condition().ok, false)
  t.equal(follower.ageSeconds(), undefined)
  t.equal(isActive(), false)
  t.same(
    lines.map(({ level, message }) => [level, message]),
    [['warn', 'waiting for the feed']],
  )
  hub.respond = undefined
  await inTime(follower.whenLoaded, 'the first state')
  t.equal(isActive(), true)
})

t.test('a token file that is missing is a problem, and no request is made', async (t) => {
  const hub = await startHub(t, STATE)
  const { problems, lines } = await follow(t, hub, { tokenFile: '/nowhere/token' })
  await eventually(() => lines.length > 0, 'the problem')
  t.match(problems()[0], /the feed cannot be asked for: \/nowhere\/token: cannot be read/)
  t.equal(hub.requests.length, 0)
})

t.test('stop ends a request that waits, and one that pauses', async (t) => {
  const { hub, follower } = await started(t)
  await hub.until(({ waits }) => waits)
  await inTime(follower.stop(), 'the end of the request')
  let isPausing = false
  const other = await started(t, STATE, {
    async pause(ms, signal) {
      if (ms > 0) {
        isPausing = true
        await never(signal)
      }
    },
  })
  other.hub.stop()
  await eventually(() => isPausing, 'the pause')
  await inTime(other.follower.stop(), 'the end of the pause')
})

const never = (signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    signal.addEventListener('abort', () => resolve())
  })

t.test('no line holds the token, nor the query of the URL', async (t) => {
  const hub = await startHub(t, STATE)
  hub.respond = (res) => res.writeHead(500).end('first-token')
  const { lines } = await follow(t, { url: `${hub.url}?canary=1` })
  await eventually(() => lines.length > 0, 'a line')
  t.notMatch(JSON.stringify(lines), /first-token|canary/)
  t.equal(hub.requests[0]?.since, null)
})
