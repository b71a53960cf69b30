import t from 'tap'
import { choosePolicy, countPoll, loadCounts, type PollHistory } from '../../src/reload/settling.ts'

/** What follows from each poll after long peace with version `a`. Loads fail. */
function decisions(versions: readonly string[]): string[] {
  let history: PollHistory = { version: 'a', polls: 9, unsettledPolls: 0 }
  return versions.map((version) => {
    history = countPoll(history, version)
    const policy = choosePolicy(history, false)
    const failureCounts = policy === 'whenSettled' || policy === 'atOnce'
    if (failureCounts) {
      history = { ...history, unsettledPolls: 0 }
    }
    return policy
  })
}

const repeated = (word: string, count: number) => Array<string>(count).fill(word)
const manyVersions = (count: number) => Array.from({ length: count }, (_, index) => `v${index}`)

t.test('a version is tried at its second poll, and decided from its fifth on', async (t) => {
  t.same(decisions(repeated('b', 9)), ['wait', 'early', 'wait', 'wait', ...repeated('whenSettled', 5)])
})

t.test('so is one that follows others', async (t) => {
  const polls = decisions([...manyVersions(9), ...repeated('b', 5)])
  t.same(polls, [...repeated('wait', 9), 'wait', 'early', 'wait', 'wait', 'whenSettled'])
})

t.test('versions that change with each poll are decided at every fiftieth', async (t) => {
  const polls = decisions(manyVersions(101))
  const untilDecided = [...repeated('wait', 49), 'atOnce']
  t.same(polls, [...untilDecided, ...untilDecided, 'wait'])
})

t.test('versions that change with every second poll, too', async (t) => {
  const polls = decisions(manyVersions(25).flatMap((version) => [version, version]))
  const untilDecided = manyVersions(24).flatMap(() => ['wait', 'early'])
  t.same(polls, [...untilDecided, 'wait', 'atOnce'])
})

t.test('what an operator asks for is decided at once', async (t) => {
  t.equal(choosePolicy({ version: 'b', polls: 1, unsettledPolls: 1 }, true), 'atOnce')
})

t.test('which loads count', async (t) => {
  const isUnchanged = async () => true
  const hasChanged = async () => false
  t.equal(await loadCounts('early', true, isUnchanged), true)
  t.equal(await loadCounts('early', true, hasChanged), false)
  t.equal(await loadCounts('early', false, isUnchanged), false, 'a file may be missing')
  t.equal(await loadCounts('whenSettled', true, isUnchanged), true)
  t.equal(await loadCounts('whenSettled', true, hasChanged), false)
  t.equal(
    await loadCounts('whenSettled', false, hasChanged),
    true,
    'the failure is that of a settled version',
  )
  t.equal(await loadCounts('atOnce', true, hasChanged), true)
  t.equal(await loadCounts('atOnce', false, hasChanged), true)
})
