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

t.test('a slip of the keyboard, another case and another separator still find the name', async (t) => {
  for (const slip of ['prot', 'prt', 'porrt', 'pott', 'Port']) t.equal(nearest(slip, names), 'port', slip)
  for (const slip of ['base_path', 'BASEPATH']) t.equal(nearest(slip, names), 'basePath', slip)
  for (const slip of ['lifetime', 'life']) t.equal(nearest(slip, names), 'lifetimeSeconds', slip)
  t.equal(nearest('maxLifetimeSecond', names), 'maxLifetimeSeconds')
})

t.test('there is no suggestion where nothing is near, or two names are', async (t) => {
  for (const name of ['', 'x', 'zz', 'header', 'colour', 'p'.repeat(65), '__proto__'])
    t.equal(nearest(name, names), undefined, name)
  t.equal(nearest('port', []), undefined)
})
