import t from 'tap'
import { readCommandLine } from '../../bench/command-line.ts'

const read = (...args: string[]) => readCommandLine(args, ['hot', 'cold'])

t.test('a full run has five rounds of two seconds, a quick one of one', (t) => {
  const full = { rounds: 5, seconds: 2, quick: false, check: false, writeBaseline: false }
  t.strictSame(read(), full)
  t.strictSame(read('--quick'), { ...full, rounds: 1, seconds: 1, quick: true })
  t.strictSame(read('--quick', '--rounds', '3'), { ...full, rounds: 3, seconds: 1, quick: true })
  t.match(read('--only', 'hot,cold', '--peers', 'nginx'), { only: ['hot', 'cold'], peers: ['nginx'] })
  t.match(read('--check', '--write-baseline'), { check: true, writeBaseline: true })
  t.end()
})

t.test('what cannot be done is said', (t) => {
  t.equal(read('--only', 'hto'), 'no scenario hto; there are hot, cold')
  t.equal(read('--seconds', '0.5'), '--seconds wants a whole number from 1')
  t.equal(read('--rounds', '0'), '--rounds wants a whole number from 1')
  t.equal(read('--write-baseline'), '--write-baseline goes with --check')
  t.match(read('--fast'), /--fast/)
  t.end()
})
