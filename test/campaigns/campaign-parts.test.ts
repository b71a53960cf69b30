import t from 'tap'
import { parseFuzzArguments } from './fuzz-arguments.ts'
import { escaped, Tally } from './fuzz-report.ts'
import { mutate } from './mutate.ts'
import { createRandom } from './random.ts'
import { shrink } from './shrink.ts'
import { parseMetrics } from './sidecar-process.ts'
import { type AtRest, leaks } from './soak-leaks.ts'
import { objectDigest, objectPiece } from './soak-object.ts'
import { outcomeOf } from './soak-outcomes.ts'
import type { Seen } from './soak-transfer.ts'

t.test('damage changes a message and leaves bytes', async (t) => {
  const message = 'GET / HTTP/1.1\r\nHost: \xff\r\n\r\n'
  let changed = 0
  for (let round = 0; round < 500; round++) {
    const mutated = mutate(createRandom(1, round), message)
    if (mutated !== message) changed++
    t.ok(/^[\0-\xff]*$/.test(mutated) || t.fail(JSON.stringify(mutated)))
  }
  t.ok(changed > 400, `${changed} of 500`)
})

t.test('a failing input is made as small as it can be, within a budget', async (t) => {
  const parts = Array.from({ length: 50 }, (_, index) => index)
  const needs = async (kept: readonly number[]) => kept.includes(7) && kept.includes(31)
  t.same(await shrink(parts, needs, { left: 1000 }), [7, 31])
  const budget = { left: 5 }
  const kept = await shrink(parts, needs, budget)
  t.ok(kept.includes(7) && kept.includes(31))
  t.equal(budget.left, 0)
  t.same(await shrink([], async () => true, { left: 9 }), [])
})

t.test('bytes are printed so that nothing is lost, and no token is', async (t) => {
  const token = 'eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl'
  t.equal(
    escaped(`a\r\n\\\0\xff${token}`, { good: [token], bad: [] }),
    'a\\r\\n\\\\\\x00\\xff{{good token 0}}',
  )
  t.equal(escaped('xy'.repeat(40), { good: [], bad: [] }), '{{"xy" x 40}}')
})

t.test('the arguments are numbers, and npm may have swallowed the name of one', async (t) => {
  t.same(parseFuzzArguments([], 5), { seconds: 30, seed: 5, only: undefined })
  t.same(parseFuzzArguments(['10', '--seed', '3', '--only', '4'], 5), { seconds: 10, seed: 3, only: 4 })
  t.same(parseFuzzArguments(['10', '3'], 5), { seconds: 10, seed: 3, only: undefined })
  for (const bad of [['x'], ['0'], ['1', '2', '3'], ['1', '--seed', 'x']])
    t.throws(() => parseFuzzArguments(bad, 5), /usage/)
})

t.test('a tally names the most frequent first', async (t) => {
  const tally = new Tally()
  for (const name of ['a', 'b', 'b']) tally.add(name)
  t.equal(String(tally), 'b 2, a 1')
})

t.test('metrics are read by name and labels', async (t) => {
  const read = parseMetrics('# HELP a b\na 1\nb{c="d e"} 2.5\n')
  t.same(
    [...read],
    [
      ['a', 1],
      ['b{c="d e"}', 2.5],
    ],
  )
})

t.test('an object is the same bytes however it is taken', async (t) => {
  const size = 200_000
  const whole: Buffer[] = []
  for (let at = 0; at < size; ) {
    const piece = objectPiece(3, at, Math.min(999, size - at))
    whole.push(piece)
    at += piece.length
  }
  const { createHash } = await import('node:crypto')
  const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')
  t.equal(objectDigest(3, 0, size), sha256(Buffer.concat(whole)))
  t.equal(objectDigest(3, 70_000, 10), sha256(Buffer.concat(whole).subarray(70_000, 70_010)))
  t.not(objectDigest(4, 0, size), objectDigest(3, 0, size))
})

const AT_REST: AtRest = {
  descriptors: 20,
  handles: 5,
  inFlight: 0,
  clientConnections: 0,
  upstreamConnections: 0,
  queued: 0,
  cachedTokens: 10,
  heapBytes: 20e6,
  residentBytes: 100e6,
}

t.test('what has grown beyond its bound is a leak', async (t) => {
  t.same(leaks(AT_REST, AT_REST), [])
  t.same(leaks(AT_REST, { ...AT_REST, heapBytes: 24e6, residentBytes: 200e6, descriptors: 19 }), [])
  t.same(leaks(AT_REST, { ...AT_REST, descriptors: 21, inFlight: 1 }), [
    'descriptors: 20 at the start, 21 at the end',
    'inFlight: 0 at the start, 1 at the end',
  ])
  t.match(leaks(AT_REST, { ...AT_REST, heapBytes: 30e6 }), [/^heap: /])
  t.same(leaks(AT_REST, { ...AT_REST, heapBytes: 30e6, cachedTokens: 5000 }), [], 'tokens are remembered')
})

t.test('what a client saw is held against the contract', async (t) => {
  const answered = (status: number, body: string, lines: Record<string, string>, sha256 = ''): Seen => ({
    how: 'answered',
    sha256,
    bytes: body.length,
    answer: {
      status,
      body,
      fields: Object.entries(lines).map(([name, value]) => ({ name, value, padded: false })),
      trailers: [],
      whole: true,
      closes: false,
      informational: [],
      end: 0,
    },
  })
  const own = (status: number, code: string) =>
    answered(status, JSON.stringify({ code, message: 'No.' }), {
      'content-type': 'application/json',
      'content-length': '9',
      'cache-control': 'no-store',
      'x-request-id': 'a',
      'proxy-status': 'storage-auth-sidecar; error=x',
      'retry-after': '1',
    })
  const forwarded = { answer: '200', forwarded: true }
  const refused = { answer: '400 InvalidToken', forwarded: false }
  for (const [seen, expected, word, problem] of [
    [answered(200, 'ok', {}, 'x'), { ...forwarded, sha256: 'x' }, '200', undefined],
    [answered(200, 'ok', {}, 'y'), { ...forwarded, sha256: 'x' }, '200', /SHA-256/],
    [answered(201, '{"sha256":"x"}', {}), { answer: '201', forwarded: true, sent: 'x' }, '201', undefined],
    [
      answered(201, '{"sha256":"y"}', {}),
      { answer: '201', forwarded: true, sent: 'x' },
      '201',
      /other bytes/,
    ],
    [answered(404, '', {}), forwarded, '404', /instead of 200/],
    [own(503, 'ServiceNotReady'), forwarded, '503', undefined],
    [own(503, 'ServiceNotReady'), refused, '503', /instead of 400 InvalidToken/],
    [own(400, 'InvalidToken'), refused, '400', undefined],
    [own(400, 'InvalidToken'), forwarded, '400', /instead of 200/],
    [{ how: 'cut', why: 'close' }, forwarded, 'cut', undefined],
    [{ how: 'cut', why: 'close' }, refused, 'cut', /cut/],
    [{ how: 'refused', why: 'ECONNRESET' }, forwarded, 'refused', /before any answer/],
    [{ how: 'refused', why: 'EPIPE' }, { ...forwarded, sendsMuch: true }, 'refused', undefined],
    [{ how: 'aborted' }, forwarded, 'left', undefined],
    [{ how: 'hung' }, forwarded, 'hung', /no answer/],
  ] as const) {
    const outcome = outcomeOf(seen as Seen, expected)
    t.equal(outcome.word, word)
    if (problem === undefined) t.equal(outcome.problem, undefined)
    else t.match(outcome.problem, problem)
  }
})
