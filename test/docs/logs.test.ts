import { readFileSync } from 'node:fs'
import t from 'tap'
import { ISSUE_FAILURES } from '../../src/http/token-endpoint.ts'
import { REJECT_REASONS } from '../../src/token/verdict.ts'
import { eventually } from '../support/eventually.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { startScene } from '../support/scene.ts'

t.test('docs/logs.md has every field of an access line, in their order', async (t) => {
  const scene = await startScene(t)
  await scene.ask(`GET /ok?secret=1 HTTP/1.1\r\nHost: h\r\n${scene.authorization}\r\n`)
  await scene.ask('GET /refused HTTP/1.1\r\nHost: h\r\n\r\n')
  const lines = () => scene.sidecar.log.filter(({ msg }) => msg === 'request')
  await eventually(() => lines().length === 2, 'both lines')
  const [passed, refused] = lines()
  const both = Object.keys({ ...refused, ...passed, reason: '' })
  const fields = both.filter((field) => !['level', 'time', 'msg'].includes(field))
  const documented = tableUnder('docs/logs.md', '## Requests').map(({ field }) => codeIn(field)[0])
  t.strictSame([...documented].sort(), fields.sort())
  t.strictSame(
    Object.keys(example()).filter((field) => !documented.includes(field)),
    ['level', 'time', 'msg'],
  )
  t.strictSame(Object.keys(example()), Object.keys(refused ?? {}))
})

t.test('docs/logs.md has every reason', async (t) => {
  const documented = new Set(
    tableUnder('docs/logs.md', '### Reasons').flatMap(({ reason }) => codeIn(reason)),
  )
  const said = ['method', 'admission', 'parser', 'upgrade']
  for (const reason of [...REJECT_REASONS, ...ISSUE_FAILURES, ...said]) t.ok(documented.has(reason), reason)
})

function example(): Record<string, unknown> {
  const [, line = ''] = /^```json\n(.*)\n```$/m.exec(readFileSync('docs/logs.md', 'utf8')) ?? []
  return JSON.parse(line)
}
