import { createHash } from 'node:crypto'
import t from 'tap'
import { InFlight, PLACES } from '../../src/token/in-flight.ts'
import type { Verdict } from '../../src/token/verdict.ts'

const digestOf = (text: string) => createHash('sha256').update(text).digest('binary')
const pending = () => new Promise<Verdict>(() => {})

t.test('a verdict on its way is found by the digest of its token until it is there', async (t) => {
  const inFlight = new InFlight()
  const verdict = pending()
  t.equal(inFlight.find(digestOf('a')), undefined)
  inFlight.add(digestOf('a'), verdict)
  t.equal(inFlight.find(digestOf('a')), verdict)
  t.equal(inFlight.find(digestOf('b')), undefined)
  inFlight.delete(digestOf('a'), verdict)
  t.equal(inFlight.find(digestOf('a')), undefined)
})

t.test(
  'of two tokens with one place the later one is not shared, and takes nothing from the first',
  async (t) => {
    const inFlight = new InFlight()
    const [one, other] = ['\u0001\u0002 one', '\u0001\u0002 other']
    const [first, second] = [pending(), pending()]
    inFlight.add(one, first)
    inFlight.add(other, second)
    t.equal(inFlight.find(one), first)
    t.equal(inFlight.find(other), undefined)
    inFlight.delete(other, second)
    t.equal(inFlight.find(one), first)
    inFlight.delete(one, first)
    inFlight.add(other, second)
    t.equal(inFlight.find(other), second)
  },
)

t.test('what is over does not end the search for the same token that came later', async (t) => {
  const inFlight = new InFlight()
  const [before, after] = [pending(), pending()]
  inFlight.add(digestOf('a'), before)
  inFlight.clear()
  t.equal(inFlight.find(digestOf('a')), undefined)
  inFlight.add(digestOf('a'), after)
  inFlight.delete(digestOf('a'), before)
  t.equal(inFlight.find(digestOf('a')), after)
})

t.test('tokens spread over all places, and never over more', async (t) => {
  const inFlight = new InFlight()
  const digests = Array.from({ length: 20 * PLACES }, (_, at) => digestOf(String(at)))
  for (const digest of digests) inFlight.add(digest, pending())
  t.equal(digests.filter((digest) => inFlight.find(digest) !== undefined).length, PLACES)
})
