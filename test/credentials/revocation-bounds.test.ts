import fc from 'fast-check'
import t from 'tap'
import { RevocationBounds } from '../../src/credentials/revocation-bounds.ts'

const NAMES = ['acme', '__proto__'] as const
const TIMES = [1, 2, 3, Number.POSITIVE_INFINITY] as const

type One = Readonly<{ name: string; boundMs: number }>

/** The slow model: a list. */
class Model {
  #all: One[] = []

  add(one: One): void {
    this.#all.push(one)
  }

  /** False if the list does not have it. */
  remove({ name, boundMs }: One): boolean {
    const at = this.#all.findIndex((one) => one.name === name && one.boundMs === boundMs)
    if (at >= 0) {
      this.#all.splice(at, 1)
    }
    return at >= 0
  }

  timesOf = (name: string) => this.#all.filter((one) => one.name === name).map(({ boundMs }) => boundMs)
}

t.test('it answers as a list of all revocations that were added and not removed', async () => {
  const step = fc.record({
    isRemoval: fc.boolean(),
    isRead: fc.boolean(),
    name: fc.constantFrom(...NAMES),
    boundMs: fc.constantFrom(...TIMES),
  })
  const answersAlike = (bounds: RevocationBounds, model: Model) =>
    NAMES.every((name) => {
      const times = model.timesOf(name)
      const latest = times.length > 0 ? Math.max(...times) : undefined
      const listed = new Map(bounds.all()).get(name) ?? []
      const isListedAlike = TIMES.every((time) => listed.includes(time) === times.includes(time))
      const hasAlike = TIMES.every((time) => bounds.has(name, time) === times.includes(time))
      const isNamed = [...bounds.names()].includes(name)
      const isOnce = new Set(listed).size === listed.length
      return (
        bounds.latestOf(name) === latest &&
        isListedAlike &&
        hasAlike &&
        isOnce &&
        isNamed === times.length > 0
      )
    })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const bounds = new RevocationBounds()
      const model = new Model()
      return steps.every(({ isRemoval, isRead, name, boundMs }) => {
        if (!isRemoval) {
          bounds.add(name, boundMs)
          model.add({ name, boundMs })
        } else if (model.remove({ name, boundMs })) {
          bounds.remove(name, boundMs)
        }
        return !isRead || answersAlike(bounds, model)
      })
    }),
  )
})

t.test('many revocations of one name cost no more than those of many names', async (t) => {
  const bounds = new RevocationBounds()
  const count = 200_000 // each with a walk through all others would take hours
  for (let boundMs = 0; boundMs < count; boundMs++) {
    bounds.add('acme', boundMs)
  }
  t.equal(bounds.latestOf('acme'), count - 1)
  for (let boundMs = count - 1; boundMs > 0; boundMs--) {
    bounds.remove('acme', boundMs)
  }
  t.equal(bounds.latestOf('acme'), 0)
})
