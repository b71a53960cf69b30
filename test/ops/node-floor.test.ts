import t from 'tap'
import { nodeFloorWarnings } from '../../src/ops/node-floor.ts'

t.test('a release with every known fix needs no words', async (t) => {
  for (const version of ['22.23.4', '22.24.0', '24.22.1', '26.12.1', '26.13.0', '28.0.0'])
    t.same(nodeFloorWarnings(version), [], version)
})

t.test('a release before the fixes is told which one has them', async (t) => {
  for (const [version, floor] of [
    ['22.23.3', '22.23.4'],
    ['24.21.9', '24.22.1'],
    ['26.0.0', '26.12.1'],
  ] as const)
    t.same(nodeFloorWarnings(version), [`Node ${version} lacks security fixes: run ${floor} or newer`])
})

t.test('a line that nobody maintains is told which ones are', async (t) => {
  for (const version of ['18.20.0', '20.18.0', '23.1.0', '25.99.0'])
    t.same(nodeFloorWarnings(version), [
      `Node ${version} is of a line without security fixes: run 22.23.4, 24.22.1, 26.12.1 or newer`,
    ])
})
