import { readFileSync } from 'node:fs'
import t from 'tap'
import { parse, parseDocument } from 'yaml'
import { settingsFile, withSettingsTable } from '../../scripts/write-docs.ts'
import { configJsonSchema, SETTINGS, valueAt } from '../../src/config/settings.ts'
import { accepted } from './support.ts'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const STALE = 'run: npm run docs'

t.test('docs/configuration.md contains the table of settings', async (t) => {
  const page = read('docs/configuration.md')
  t.equal(page, withSettingsTable(page), STALE)
})

t.test('config/sidecar.schema.json is what `config schema` prints', async (t) => {
  t.equal(read('config/sidecar.schema.json'), configJsonSchema(), STALE)
  const schema = JSON.parse(configJsonSchema())
  t.match(schema, {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    additionalProperties: false,
    properties: {
      listen: { additionalProperties: false, properties: { port: { type: 'integer', maximum: 65535 } } },
    },
  })
  t.notOk(schema.required, 'no group has to be given')
})

t.test('config/sidecar.yaml is generated, loads and sets every setting to its default', async (t) => {
  const yaml = read('config/sidecar.yaml')
  t.equal(yaml, settingsFile(), STALE)
  const { config } = accepted({ yaml, env: {} })
  t.strictSame(config, accepted({}).config)
  // With the commented settings uncommented, no setting is missing.
  const all = parseDocument(yaml.replace(/^ *(?:# *)+(?=\w+:(?: |$))/gm, (mark) => mark.replaceAll('# ', '')))
  t.strictSame(all.errors, [])
  for (const { path, steps } of SETTINGS) t.not(valueAt(all.toJS(), steps), undefined, path)
})

t.test('the examples of credentials and revocations have the documented shape', async (t) => {
  t.match(parse(read('config/credentials.example.yaml')), {
    accounts: [
      {
        accountId: String,
        credentials: [{ accessKey: String, secretHash: /^\$sha256\$[A-Za-z0-9+/]{43}$/ }],
      },
    ],
  })
  t.match(parse(read('config/revocations.example.yaml')), {
    revocations: [{ jti: String }, { accountId: String, issuedBefore: /^\d{4}-.*Z$/ }, { accessKey: String }],
  })
})
