import t from 'tap'
import { nearest } from '../../src/config/problem.ts'

const names = [
  'host',
  'port',
  'basePath',
  'lifetimeSeconds',
  'maxLifetimeSeconds',
  'headerBytes',
  'headerLines',
]

t.test(
  'finds what was meant behind swapped, missing, doubled and wrong letters, other case and separators',
  async (t) => {
    for (const [slip, meant] of [
      ['prot', 'port'],
      ['prt', 'port'],
      ['porrt', 'port'],
      ['pott', 'port'],
      ['Port', 'port'],
      ['base_path', 'basePath'],
      ['BASEPATH', 'basePath'],
      ['lifetime', 'lifetimeSeconds'],
      ['life', 'lifetimeSeconds'],
      ['maxLifetimeSecond', 'maxLifetimeSeconds'],
      ['headerByte', 'headerBytes'],
    ] as const) {
      t.equal(nearest(slip, names), meant, slip)
    }
  },
)

t.test('there is no suggestion where nothing is near, or two names are', async (t) => {
  for (const name of ['', 'x', 'zz', 'header', 'colour', 'p'.repeat(65), '__proto__'])
    t.equal(nearest(name, names), undefined, name)
  t.equal(nearest('port', []), undefined)
})
