/** Settings that a page shows are valid. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'

const GROUPS = new Set(Object.keys(JSON.parse(readFileSync('config/sidecar.schema.json', 'utf8')).properties))
const REQUIRED = {
  upstreams: [{ prefix: '/', url: 'http://127.0.0.1:9000' }],
  keys: { directory: '/keys' },
  credentials: { file: '/credentials.yaml' },
}
const PAGES = ['README.md', ...readdirSync('docs').map((name) => `docs/${name}`)].filter((name) =>
  name.endsWith('.md'),
)

t.test('settings in pages are valid', async (t) => {
  for (const page of PAGES) {
    for (const [, block = ''] of readFileSync(page, 'utf8').matchAll(/^```yaml\n([\s\S]*?)^```/gm)) {
      const settings = Object(parse(block))
      const isList = Array.isArray(settings.revocations) || Array.isArray(settings.accounts)
      if (isList || !Object.keys(settings).every((key) => GROUPS.has(key))) continue
      const verifies = settings.keys?.jwksUrl !== undefined && { credentials: undefined }
      const file = join(t.testdir(), 'sidecar.yaml')
      writeFileSync(file, JSON.stringify({ ...REQUIRED, ...verifies, ...settings }))
      const loaded = loadConfig({ file, env: {}, flags: {} })
      t.strictSame(loaded.ok ? [] : loaded.problems, [], `${page}: ${block}`)
    }
  }
})
