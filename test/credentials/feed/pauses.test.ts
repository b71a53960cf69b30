/** How long a follower pauses after each outcome of a request. The random number is always 1. */
import t from 'tap'
import { type Outcome, Pauses } from '../../../src/credentials/feed/pauses.ts'

/** The pause after each outcome. They follow each other after so many milliseconds. */
function pausesAfter(outcomes: readonly Outcome[], betweenMs = 1000): number[] {
  const pauses = new Pauses(() => 1)
  return outcomes.map((outcome, at) => {
    pauses.note(outcome, at * betweenMs)
    return pauses.next()
  })
}

t.test('failures and hasty answers are followed by growing pauses, until one is good', async (t) => {
  t.same(
    pausesAfter(['failed', 'failed', 'hasty', 'failed', 'failed', 'failed']),
    [1000, 2000, 4000, 8000, 10_000, 10_000],
  )
  t.same(pausesAfter(['failed', 'failed', 'steady', 'failed']), [1000, 2000, 0, 1000])
  t.same(pausesAfter(['failed', 'failed', 'changes', 'failed']), [1000, 2000, 100, 1000])
})

t.test('whole states are followed by pauses once there are many in a short time', async (t) => {
  t.same(pausesAfter(['whole', 'whole', 'whole', 'whole', 'whole']), [0, 0, 0, 1000, 2000])
  t.same(pausesAfter(['whole', 'whole', 'whole', 'whole', 'whole'], 60_000), [0, 0, 0, 0, 0])
  t.same(pausesAfter(['whole', 'whole', 'whole', 'steady', 'whole']), [0, 0, 0, 0, 0])
})

t.test('changes between whole states do not end the pauses after them', async (t) => {
  const twice: Outcome[] = ['whole', 'changes', 'whole', 'changes']
  t.same(pausesAfter([...twice, ...twice, 'whole']), [0, 100, 0, 100, 0, 100, 1000, 100, 2000])
})
