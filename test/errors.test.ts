import t from 'tap'
import { ACCESS_FAILURES, ERRORS, UPSTREAM_OUTCOMES } from '../src/base/errors.ts'
import { codeIn, tableUnder } from './support/markdown.ts'

t.test('docs/clients.md has every code with its status and message', async (t) => {
  const rows = tableUnder('docs/clients.md', '## Codes')
  const documented = rows.map(({ status, code, message }) => `${status} ${codeIn(code)[0]} ${message}`)
  const expected = Object.values(ERRORS).map(({ status, code, message }) => `${status} ${code} ${message}`)
  t.strictSame(documented.sort(), expected.sort())
  for (const { when } of rows) {
    t.match(when, /\w/)
  }
})

t.test('docs/clients.md has every Proxy-Status error', async (t) => {
  const documented = tableUnder('docs/clients.md', '## Proxy-Status').map(({ error }) => codeIn(error)[0])
  t.strictSame(documented, [
    'http_request_error',
    'http_request_denied',
    'proxy_internal_response',
    ...UPSTREAM_OUTCOMES.filter((outcome) => outcome !== 'ok' && !outcome.startsWith('client_')),
  ])
})

t.test('docs/clients.md has every reason for refusing a token', async (t) => {
  const rows = tableUnder('docs/clients.md', '## Reasons for refusing a token')
  const documented = rows.map(({ reason }) => codeIn(reason)[0])
  t.strictSame(documented, [...ACCESS_FAILURES])
})
