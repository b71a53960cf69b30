import { readFileSync } from 'node:fs'
import t from 'tap'
import { generatedPart, SCALING_DOCUMENT, withGeneratedPart } from '../../bench/scaling/document.ts'
import { type PodOptions, simulatePod } from '../../bench/scaling/pod.ts'
import { scalingTables } from '../../bench/scaling/tables.ts'

const options: PodOptions = {
  tokens: 1000,
  exponent: 1,
  requestsPerSecond: 20,
  cacheTokens: 10_000,
  maxAgeSeconds: 60,
  seed: 7,
}

t.test('the tables of docs/scaling.md are what the simulation finds', async (t) => {
  t.equal(generatedPart(readFileSync(SCALING_DOCUMENT, 'utf8')), await scalingTables())
})

t.test('a generated part replaces the one before it and nothing else', (t) => {
  const text = readFileSync(SCALING_DOCUMENT, 'utf8')
  const changed = withGeneratedPart(text, 'another')
  t.equal(generatedPart(changed), 'another')
  t.equal(withGeneratedPart(changed, generatedPart(text)), text)
  t.throws(() => generatedPart('# no place'), { message: 'the document has no place for tables' })
  t.end()
})

t.test('a simulated pod', async (t) => {
  t.test('does the same for the same seed, and something else for another', async (t) => {
    const outcome = await simulatePod(options)
    t.strictSame(await simulatePod(options), outcome)
    t.not((await simulatePod({ ...options, seed: 8 })).hitRatio, outcome.hitRatio)
  })

  t.test('verifies one token once in each age of an entry', async (t) => {
    const { hitRatio, verifiedPerSecond, remembered } = await simulatePod({ ...options, tokens: 1 })
    t.ok(Math.abs(verifiedPerSecond * options.maxAgeSeconds - 1) < 0.25, `${verifiedPerSecond} a second`)
    t.ok(hitRatio > 0.999)
    t.equal(remembered, 1)
  })

  t.test('hits with the chance that the tokens it can hold have, where all are alike', async (t) => {
    const alike = { ...options, exponent: 0, tokens: 1000, cacheTokens: 100, maxAgeSeconds: 500 }
    const { hitRatio, remembered } = await simulatePod(alike)
    t.ok(Math.abs(hitRatio - 0.1) < 0.02, `${hitRatio}`)
    t.equal(remembered, 100)
  })

  t.test('loses hits by changes, and gets them back after an emptying', async (t) => {
    const { hitRatio, afterEmptying } = await simulatePod(options)
    const changing = await simulatePod({ ...options, changeEverySeconds: 1 })
    t.ok(changing.hitRatio < hitRatio / 2, `${changing.hitRatio} of ${hitRatio}`)
    const [first = 1] = afterEmptying
    t.equal(afterEmptying.length, 60)
    t.ok(first < hitRatio / 2)
    t.ok((afterEmptying.at(-1) ?? 0) > first)
  })
})
