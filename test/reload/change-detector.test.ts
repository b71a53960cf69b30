import t from 'tap'
import { ATOMIC, type ChangeLimits, type ChangeState, nextChange } from '../../src/reload/change-detector.ts'

const FILES: ChangeLimits = { pairPolls: 5, unstablePolls: 50, retryPolls: 25 }

/**
 * Plays polls from an active version `a`: what each finds, and the outcome. `-`: the source is not available.
 * `!`: forced. `good`, `bad`: what loading gives; `moved`: good, but the source changed meanwhile.
 */
function play(limits: ChangeLimits, polls: readonly string[], settled: string | undefined = 'a'): string {
  let state: ChangeState = { settled, seen: settled, read: settled, changedPolls: 0 }
  const outcomes = polls.map((poll) => {
    const [, forced, version = '', result] = /^(!?)(\S+)(?: (\w+))?$/.exec(poll) ?? []
    const found =
      version === '-'
        ? nextChange(state, { kind: 'unavailable', reason: result ?? '' }, limits)
        : nextChange(state, { kind: forced ? 'forced' : 'polled', version }, limits)
    state = found[0]
    const [, action] = found
    if (action !== 'try' && action !== 'load') return action
    const [ok, isUnchanged] = [result !== 'bad', result !== 'moved']
    const [next, outcome] = nextChange(state, { kind: 'loaded', version, action, ok, isUnchanged }, limits)
    state = next
    return `${action}:${outcome}`
  })
  // Runs of one outcome are counted.
  const runs: [string, number][] = []
  for (const outcome of outcomes) {
    const last = runs.at(-1)
    if (last?.[0] === outcome) last[1]++
    else runs.push([outcome, 1])
  }
  return runs.map(([outcome, count]) => (count === 1 ? outcome : `${count}x${outcome}`)).join(' ')
}

const times = (count: number, poll: string) => Array<string>(count).fill(poll)
const everyPollAnother = (count: number, result: string) =>
  Array.from({ length: count }, (_, poll) => `v${poll} ${result}`)

const CASES: readonly (readonly [string, ChangeLimits, readonly string[], string])[] = [
  ['an unchanged version is left alone', FILES, times(9, 'a'), '9xwait'],
  ['a good version becomes active once two polls found it', FILES, times(3, 'b'), 'wait try:activate wait'],
  ['the return of the active version is no change', FILES, ['b', 'a', 'a'], '3xwait'],
  [
    'a bad version is reported at the fifth poll',
    FILES,
    times(7, 'b bad'),
    'wait try:wait 2xwait load:report 2xwait',
  ],
  [
    'the second file of a pair follows in time',
    FILES,
    ['b bad', 'b bad', 'c', 'c'],
    'wait try:wait wait try:activate',
  ],
  [
    'a version that changed while it was read is read again',
    FILES,
    ['b moved', 'b moved', 'c', 'c'],
    'wait try:wait wait try:activate',
  ],
  [
    'a version that changes with each poll is loaded at the fiftieth',
    FILES,
    everyPollAnother(51, 'good'),
    '49xwait load:activate wait',
  ],
  ['and reported if it is bad', FILES, everyPollAnother(51, 'bad'), '49xwait load:report wait'],
  [
    'a rejected version is tried again, silently',
    FILES,
    times(56, 'b bad'),
    'wait try:wait 2xwait load:report 24xwait try:wait 24xwait try:wait wait',
  ],
  [
    'and becomes active when it can be used',
    FILES,
    [...times(29, 'b bad'), ...times(3, 'b')],
    'wait try:wait 2xwait load:report 24xwait try:activate 2xwait',
  ],
  [
    'a forced load reports each time',
    FILES,
    ['!a bad', '!a bad', '!a', 'a'],
    '2xload:report load:activate wait',
  ],
  ['a forced version is settled', FILES, ['!b', 'b', 'b'], 'load:activate 2xwait'],
  [
    'an atomic version is loaded at once',
    ATOMIC,
    ['b', 'b', 'c bad', 'c bad', 'c'],
    'load:activate wait load:report try:wait try:activate',
  ],
  [
    'an unavailable source is reported once for each reason',
    ATOMIC,
    ['- down', '- down', '- slow', 'a', 'a'],
    'report wait report recover wait',
  ],
  ['and may come back with a new version', ATOMIC, ['- down', 'b', 'b'], 'report load:activate wait'],
  [
    'a rejected version does not recover by being seen',
    ATOMIC,
    ['b bad', '- down', 'b bad', 'b'],
    'load:report report try:wait try:activate',
  ],
]

t.test('each sequence of polls has its actions', async (t) => {
  for (const [name, limits, polls, expected] of CASES) t.equal(play(limits, polls), expected, name)
})
