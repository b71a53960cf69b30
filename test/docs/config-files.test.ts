/**
 * The files in config/, and the settings that pages show: each is what the program takes.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import t from 'tap'
import { parse } from 'yaml'
import { configCommand } from '../../src/cli/config.ts'
import { readAccountsFile } from '../../src/credentials/accounts-file.ts'
import { parseRevocations } from '../../src/token/revocations-file.ts'
import { runCommand } from '../support/run-command.ts'

const read = (path: string) => readFileSync(path, 'utf8')
const SCHEMA = JSON.parse(read('config/sidecar.schema.json'))

const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, allErrors: true })
formats.default(ajv)
const validate = ajv.compile(SCHEMA)

/** What the schema has against settings; nothing when it takes them. */
const faults = (settings: unknown) => (validate(settings) ? '' : ajv.errorsText(validate.errors))

t.test('config/sidecar.yaml passes `config check` and the JSON Schema as it is', async (t) => {
  t.match(await runCommand(configCommand, ['check', '--config', 'config/sidecar.yaml']), {
    failure: undefined,
  })
  t.equal(faults(parse(read('config/sidecar.yaml'))), '')
})

t.test('the JSON Schema refuses what the program refuses', async (t) => {
  const upstreams = [{ prefix: '/', url: 'http://127.0.0.1:9000' }]
  for (const [name, settings] of [
    ['an unknown key', { upstreams, lisen: {} }],
    ['an unknown key inside', { upstreams, listen: { prot: 1 } }],
    ['a wrong type', { upstreams, listen: { port: 'http' } }],
    ['a number too large', { upstreams, listen: { port: 65536 } }],
    ['a word that is none of them', { upstreams, log: { access: 'some' } }],
    ['a secret in place of its file', { upstreams, credentials: { postgres: { url: 'postgres://a' } } }],
  ] as const) {
    t.not(faults(settings), '', name)
    const directory = t.testdir({ 'sidecar.yaml': JSON.stringify(settings) })
    const { failure } = await runCommand(configCommand, [
      'check',
      '--config',
      join(directory, 'sidecar.yaml'),
    ])
    t.equal(failure?.exitCode, 2, name)
  }
  t.equal(faults({ upstreams }), '')
})

t.test('the examples of credentials and revocations load', async (t) => {
  const accounts = await readAccountsFile('config/credentials.example.yaml')
  t.ok(accounts.ok)
  const revocations = parseRevocations(read('config/revocations.example.yaml'))
  t.equal(revocations.ok && revocations.value.length, 3)
})

t.test('settings that a page shows are good ones', async (t) => {
  const pages = ['README.md', ...readdirSync('docs').map((name) => `docs/${name}`)]
  let checked = 0
  for (const page of pages.filter((name) => name.endsWith('.md'))) {
    for (const [, block = ''] of read(page).matchAll(/^```yaml\n([\s\S]*?)^```/gm)) {
      const settings: unknown = parse(block)
      if (!isSettings(settings)) continue
      checked++
      t.equal(faults(settings), '', `${page}: ${block}`)
      // A part of the settings is completed by what none can be without.
      const file = join(t.testdir(), 'sidecar.yaml')
      const upstreams = [{ prefix: '/', url: 'http://127.0.0.1:9000' }]
      writeFileSync(file, JSON.stringify({ upstreams, ...settings }))
      const { failure } = await runCommand(configCommand, ['check', '--config', file])
      t.equal(failure?.message ?? '', '', `${page}: ${block}`)
    }
  }
  t.ok(checked >= 8, `${checked} blocks`)
})

/** Whether a document has settings, and is no manifest or list of something else. */
function isSettings(document: unknown): document is object {
  if (typeof document !== 'object' || document === null || Array.isArray(document)) return false
  const isOther = Object.values(document).some(
    (value) => Array.isArray(value) && /\bjti|accountId\b/.test(JSON.stringify(value)),
  )
  return !isOther && Object.keys(document).every((key) => key in SCHEMA.properties)
}
