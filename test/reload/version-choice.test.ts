import t from 'tap'
import { VersionChoice } from '../../src/reload/version-choice.ts'

const NOT_FORCED = false
const FORCED = true

t.test('a version is loaded once, and then kept', async (t) => {
  const choice = new VersionChoice(undefined, 0)
  t.equal(choice.hasActive, false)
  t.equal(choice.choose('a', NOT_FORCED, 0), 'load')
  choice.activated('a')
  t.equal(choice.hasActive, true)
  t.equal(choice.choose('a', NOT_FORCED, 0), 'keep')
  t.equal(choice.choose('a', FORCED, 0), 'load')
  t.equal(choice.choose('b', NOT_FORCED, 0), 'load')
})

t.test('a rejected version waits, and is news once', async (t) => {
  const choice = new VersionChoice('a', 5000)
  t.equal(choice.rejected('b', 1000), true)
  t.equal(choice.hasRejected, true)
  t.equal(choice.choose('b', NOT_FORCED, 5999), 'wait')
  t.equal(choice.choose('b', FORCED, 5999), 'load')
  t.equal(choice.choose('b', NOT_FORCED, 6000), 'load')
  t.equal(choice.rejected('b', 6000), false)
  t.equal(choice.choose('b', NOT_FORCED, 10_999), 'wait')
})

t.test('a rejected version that returns after another one does not wait', async (t) => {
  const choice = new VersionChoice('a', 5000)
  choice.rejected('b', 1000)
  t.equal(choice.choose('c', NOT_FORCED, 1200), 'load')
  t.equal(choice.choose('b', NOT_FORCED, 1400), 'load')
})

t.test('after a rejection the active version is loaded again', async (t) => {
  const choice = new VersionChoice('a', 5000)
  choice.rejected('b', 0)
  t.equal(choice.choose('a', NOT_FORCED, 200), 'load')
  choice.activated('a')
  t.equal(choice.hasRejected, false)
  t.equal(choice.choose('a', NOT_FORCED, 400), 'keep')
})

t.test('a reload can reject the active version itself', async (t) => {
  const choice = new VersionChoice('a', 5000)
  t.equal(choice.rejected('a', 0), true)
  t.equal(choice.choose('a', NOT_FORCED, 200), 'wait')
  t.equal(choice.choose('a', NOT_FORCED, 5000), 'load')
})
