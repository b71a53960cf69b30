/** docs/openapi.yaml beside the program: every documented answer comes, with its headers and body, and no other one. */
import { readFileSync } from 'node:fs'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { parse } from 'yaml'
import { type Setup, type SetupOptions, startSetup } from '../support/setup.ts'

interface Reference {
  readonly $ref: string
}
interface Document {
  readonly paths: Record<string, Record<string, { readonly responses: Record<string, Reference> }>>
  readonly components: {
    readonly headers: Record<string, { readonly required?: boolean }>
    readonly responses: Record<string, { headers: Record<string, Reference>; content?: object }>
  }
}

const read = (): Document => parse(readFileSync('docs/openapi.yaml', 'utf8'))
const { paths, components } = read()
const ajv = new Ajv2020({ strict: false, allErrors: true }).addSchema(read(), 'openapi')

/** On every answer of a server; not worth a word in the document. */
const COMMON = ['connection', 'content-type', 'date', 'keep-alive']
const PATHS = ['/v2/auth/token', '/v2/auth/token/'] as const
const METHODS = ['get', 'head', 'post'] as const

const faults = (pointer: string, value: unknown) =>
  ajv.validate({ $ref: `openapi${pointer}` }, value) ? [] : [`${pointer}: ${ajv.errorsText()}`]

const seen = new Set<string>()

/** Asks, and checks the answer against the document; returns its body. */
async function ask(setup: Setup, method: string, path: string, lines = '', body?: string) {
  const framing = body === undefined ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`
  const end = lines === 'half' ? '' : `\r\n${body ?? ''}`
  const bytes = `${method.toUpperCase()} ${path} HTTP/1.1\r\nHost: h\r\n${framing}${lines}${end}`
  const response = await setup.ask(Buffer.from(bytes), { head: method === 'head' })
  const what = `${method} ${path} ${response.status}`
  const name = paths[path]?.[method]?.responses[response.status]?.$ref.split('/').at(-1) ?? ''
  const documented = components.responses[name]
  if (documented === undefined) throw new Error(`${what} is not documented`)
  seen.add(what)
  const wrong = Object.entries(documented.headers).flatMap(([header, { $ref }]) => {
    const value = response.headers[header.toLowerCase()]
    const isOptional = components.headers[$ref.split('/').at(-1) ?? '']?.required !== true
    return value === undefined && isOptional ? [] : faults(`${$ref}/schema`, value)
  })
  const known = new Set([...COMMON, ...Object.keys(documented.headers).map((header) => header.toLowerCase())])
  wrong.push(...Object.keys(response.headers).filter((header) => !known.has(header)))
  const json = response.body.length === 0 ? undefined : JSON.parse(response.body.toString())
  if (method !== 'head' && documented.content !== undefined)
    wrong.push(...faults(`#/components/responses/${name}/content/application~1json/schema`, json))
  t.strictSame(wrong, [], what)
  return json
}

t.test('docs/openapi.yaml is an OpenAPI 3.1 document', async (t) => {
  const validator = new Validator()
  const { valid, errors } = await validator.validate({ ...read() })
  t.same([valid, errors, validator.version], [true, undefined, '3.1'])
})

t.test('every documented response occurs as documented, and no other one', async (t) => {
  let broken = false
  const now = () => (broken ? JSON.parse('the clock is broken') : Date.now())
  const settings = {
    'limits-login-failures-count': '1',
    'timeouts-idle-seconds': '0.3',
    'timeouts-headers-seconds': '0.3',
    'forward-auth-path': '/_auth',
    'links-enabled': 'true',
  }
  const start = (more: SetupOptions['settings']) => startSetup(t, { now, settings: { ...settings, ...more } })
  const setup = await start({ 'identity-assertion-enabled': 'true' })
  const other = await start({
    'contract-refused-token-status': '401',
    'contract-expiration-sec': 'string',
    'contract-authentication-failed-code': 'AuthenticationFailed',
    'forward-auth-max-age-seconds': '9',
  })
  const past = { now: Date.now() - 7_200_000 }
  const logIn = (path: string, accountId: string) =>
    ask(setup, 'post', path, '', JSON.stringify({ ...setup.sidecar.logins[0], accountId }))
  for (const path of PATHS) {
    for (const one of [setup, other]) {
      const login = JSON.stringify(one.sidecar.logins[0])
      const { expirationSec } = await ask(one, 'post', path, '', login)
      t.type(expirationSec, one === other ? 'string' : 'number')
      await ask(one, 'post', path, '', login.replace('acme', `stranger of ${path}`))
    }
    await logIn(path, '')
    await logIn(path, `stranger of ${path}`)
    await ask(setup, 'post', path, 'Content-Length: 9\r\n')
    const signing = t.capture(crypto.subtle, 'sign', () => Promise.reject(new Error('signing fails')))
    await ask(setup, 'post', path, '', JSON.stringify(setup.sidecar.logins[0]))
    signing.restore()
  }
  const links = '/v2/auth/links'
  for (const one of [setup, other]) {
    const narrow = `Authorization: Bearer ${await one.sidecar.mint({ claims: { scope: 'storage.read:/a' } })}\r\n`
    for (const [lines, body] of [
      [one.authorization, '{"method":"GET","target":"/b"}'],
      [one.authorization, '{}'],
      [narrow, '{"method":"GET","target":"/b"}'],
      ['', '{}'],
    ] as const)
      await ask(one, 'post', links, lines, body)
  }
  const failing = t.capture(crypto.subtle, 'sign', () => Promise.reject(new Error('signing fails')))
  await ask(setup, 'post', links, setup.authorization, '{"method":"GET","target":"/b"}')
  failing.restore()
  await ask(setup, 'post', links, `${setup.authorization}Content-Length: 9\r\n`)
  for (const [path, item] of Object.entries(paths)) {
    for (const method of METHODS.filter((name) => item[name] !== undefined)) {
      for (const lines of ['a: b'.repeat(9999), 'Expect: 200-ok', 'Host: h2'])
        await ask(setup, method, path, `${lines}\r\n`)
      if (method === 'post') continue
      await ask(setup, method, path, 'half')
      for (const one of [setup, other]) {
        const expired = `Authorization: Bearer ${await one.sidecar.mint(past)}\r\n`
        const narrow = `Authorization: Bearer ${await one.sidecar.mint({ claims: { scope: 'storage.read:/' } })}\r\n`
        for (const lines of [one.authorization, expired, narrow, '']) await ask(one, method, path, lines)
      }
      broken = true
      await ask(setup, method, path, setup.authorization)
      broken = false
    }
  }
  for (const [path, item] of Object.entries(paths))
    for (const method of METHODS)
      for (const [status, { $ref }] of Object.entries(item[method]?.responses ?? {}))
        if (!$ref.endsWith('Reserved'))
          t.ok(seen.has(`${method} ${path} ${status}`), `${method} ${path} ${status}`)
})
