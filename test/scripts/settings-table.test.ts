import { readFileSync } from 'node:fs'
import t from 'tap'
import { withSettingsTable } from '../../scripts/settings-table.ts'

t.test('docs/configuration.md holds every setting as it is', async (t) => {
  const document = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8')
  t.equal(document, withSettingsTable(document), 'run: npm run docs')
  t.throws(() => withSettingsTable('no marks'), /no place/)
})
