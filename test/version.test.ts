import { readFileSync } from 'node:fs'
import t from 'tap'
import { VERSION, versionOf } from '../src/version.ts'

t.test('the version is that of package.json', async (t) => {
  const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  t.equal(VERSION, manifest.version)
  t.equal(versionOf('{"version":"1.2.3-rc.1"}'), '1.2.3-rc.1')
})
