/**
 * docs/openapi.yaml beside the program: what it lists is what comes, status by status, header by header, code by
 * code, and nothing comes that it does not list.
 */
import { readFileSync } from 'node:fs'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import type { RawResponse } from '../support/raw-client.ts'
import { startScene } from '../support/scene.ts'

interface Reference {
  readonly $ref: string
}
interface ResponseObject {
  readonly 'x-reserved'?: boolean
  readonly headers: Readonly<Record<string, Reference>>
}
interface Operation {
  readonly operationId: string
  readonly responses: Readonly<Record<string, Reference>>
}
interface Document {
  readonly openapi: string
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: {
    readonly responses: Readonly<Record<string, ResponseObject>>
    readonly schemas: Readonly<Record<string, object>>
  }
}

const read = (): Document => parse(readFileSync('docs/openapi.yaml', 'utf8'))
const DOCUMENT = read()
const METHODS = ['get', 'head', 'post', 'put', 'delete', 'options', 'patch', 'trace'] as const
const PATHS = ['/v2/auth/token', '/v2/auth/token/'] as const

/** On every answer of a server; not worth a word in the document. */
const COMMON = new Set(['connection', 'content-type', 'date', 'keep-alive'])

const ajv = new Ajv2020({ strict: false, allErrors: true })
ajv.addSchema(DOCUMENT, 'openapi')

/** What keeps a value from having the schema at a pointer; nothing when it has it. */
function faults(pointer: string, value: unknown): string {
  const validate = ajv.compile({ $ref: `openapi${pointer}` })
  return validate(value) ? '' : ajv.errorsText(validate.errors)
}

/** The name of the response that a method of a path has under a status. */
function responseName(path: string, method: string, status: number): string | undefined {
  return DOCUMENT.paths[path]?.[method]?.responses[status]?.$ref.replace('#/components/responses/', '')
}

/** Keeps what was answered, and checks each answer against the document. */
function createRecord() {
  const seen = new Set<string>()
  const codes = new Set<string>()
  return {
    seen,
    codes,
    check(t: Test, path: string, method: string, answer: RawResponse, name: string): void {
      const what = `${method} ${path}: ${name}: ${answer.status}`
      const response = responseName(path, method, answer.status)
      if (response === undefined) {
        t.fail(`${what} is not documented`)
        return
      }
      seen.add(`${method} ${path} ${answer.status}`)
      const wanted = DOCUMENT.components.responses[response]?.headers ?? {}
      const wrong = Object.entries(wanted).map(([header, { $ref }]) =>
        faults(`${$ref}/schema`, answer.headers[header.toLowerCase()]),
      )
      const known = new Set(Object.keys(wanted).map((header) => header.toLowerCase()))
      const unknown = Object.keys(answer.headers).filter(
        (header) => !known.has(header) && !COMMON.has(header),
      )
      if (method !== 'head') {
        const body = JSON.parse(answer.body.toString())
        codes.add(`${response} ${body.code}`)
        const schema = `#/components/responses/${response}/content/application~1json/schema`
        wrong.push(faults(schema, body))
      }
      t.same(
        [answer.headers['content-type'], wrong.filter(Boolean), unknown],
        ['application/json', [], []],
        what,
      )
    },
  }
}

t.test('docs/openapi.yaml is an OpenAPI 3.1 document', async (t) => {
  const validator = new Validator()
  const result = await validator.validate({ ...read() })
  t.same([result.valid, result.errors, validator.version], [true, undefined, '3.1'])
  const ids = Object.values(DOCUMENT.paths).flatMap((item) =>
    METHODS.map((method) => item[method]?.operationId),
  )
  t.equal(new Set(ids).size, PATHS.length * METHODS.length, 'each operation has a name of its own')
  for (const name of Object.keys(DOCUMENT.components.schemas)) {
    t.doesNotThrow(() => ajv.compile({ $ref: `openapi#/components/schemas/${name}` }), name)
  }
  t.strictSame(
    Object.keys(DOCUMENT.components.responses).filter(
      (name) => DOCUMENT.components.responses[name]?.['x-reserved'],
    ),
    ['ServiceNotReadyReserved'],
  )
})

t.test('the schema of a login takes and refuses what the program does', async (t) => {
  const good = { accountId: 'acme', accessKey: 'AK0', secret: 's' }
  const scene = await startScene(t)
  for (const [name, login] of [
    ['the least', good],
    ['more members', { ...good, more: 1 }],
    ['another script', { ...good, accountId: '口座-中文-𝔘' }],
    ['as long as can be', { ...good, secret: '𝔘'.repeat(1024) }],
    ['too long', { ...good, secret: '𝔘'.repeat(1025) }],
    ['empty', { ...good, accessKey: '' }],
    ['a number', { ...good, secret: 1 }],
    ['a control character in a name', { ...good, accountId: 'a\u0085b' }],
    ['a control character in a secret', { ...good, secret: 'a\nb' }],
    ['no secret', { accountId: 'acme', accessKey: 'AK0' }],
    ['an array', [good]],
    ['null', null],
  ] as const) {
    const { status } = await scene.ask(post('/v2/auth/token', JSON.stringify(login)))
    const ok = faults('#/components/schemas/Login', login) === ''
    t.equal(status, ok ? 403 : 400, name)
  }
})

t.test('every documented answer comes as it is documented, and no other one', async (t) => {
  const clock = { broken: false }
  const scene = await startScene(t, {
    now: () => {
      if (clock.broken) throw new Error('the clock is broken')
      return Date.now()
    },
    credentials: [{}],
    settings: {
      'limits-login-failures-count': '1',
      'timeouts-idle-seconds': '1.5',
      'timeouts-headers-seconds': '0.3',
    },
  })
  const [login] = scene.sidecar.logins
  const expired = await scene.sidecar.mint({ now: Date.now() - 7200_000, lifetimeSeconds: 3600 })
  const record = createRecord()

  for (const path of PATHS) {
    const ask = async (method: string, name: string, bytes: string | Buffer) =>
      record.check(t, path, method, await scene.ask(bytes, { head: method === 'head' }), name)

    await ask('post', 'a login', post(path, JSON.stringify(login)))
    await ask('post', 'no fields', post(path, '{}'))
    await ask('post', 'authorization twice', post(path, '{}', scene.authorization.repeat(2)))
    const stranger = JSON.stringify({ ...login, accountId: `stranger of ${path}` })
    await ask('post', 'a wrong login', post(path, stranger))
    await ask('post', 'a wrong login again', post(path, stranger))
    clock.broken = true
    await ask('post', 'a fault', post(path, stranger))
    clock.broken = false
    await ask('post', 'half a body', `POST ${path} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{`)

    for (const method of ['get', 'head']) {
      await ask(method, 'a good token', request(method, path, scene.authorization))
      await ask(method, 'an expired one', request(method, path, `Authorization: Bearer ${expired}\r\n`))
      await ask(method, 'none', request(method, path))
    }
    for (const method of METHODS) {
      await ask(method, 'another host', request(method, path, 'Host: h2\r\n'))
      if (method !== 'trace')
        await ask(method, 'another expectation', request(method, path, 'Expect: more\r\n'))
      if (method !== 'get' && method !== 'head' && method !== 'post') {
        const refused = await scene.ask(request(method, path))
        record.check(t, path, method, refused, 'the method')
        const twice = await scene.ask(request(method, path, scene.authorization.repeat(2)))
        record.check(t, path, method, twice, 'authorization twice')
      }
      await ask(method, 'a long line', request(method, path, `a: ${'b'.repeat(40_000)}\r\n`))
    }
    await Promise.all(
      METHODS.map((method) =>
        ask(method, 'half a head', `${method.toUpperCase()} ${path} HTTP/1.1\r\nHost: h\r\n`),
      ),
    )
    clock.broken = true
    for (const method of ['get', 'head'])
      await ask(method, 'a fault', request(method, path, scene.authorization))
    clock.broken = false
  }

  const documented = Object.entries(DOCUMENT.paths).flatMap(([path, item]) =>
    METHODS.flatMap((method) =>
      Object.entries(item[method]?.responses ?? {}).flatMap(([status, { $ref }]) =>
        $ref.endsWith('Reserved') ? [] : [`${method} ${path} ${status}`],
      ),
    ),
  )
  t.strictSame([...record.seen].sort(), documented.sort())
  t.comment(`${documented.length} documented answers, all of them provoked`)

  const wanted = Object.keys(DOCUMENT.components.responses)
    .filter((name) => !name.endsWith('Reserved'))
    .flatMap((name) => codesOf(name).map((code) => `${name} ${code}`))
  // Under other settings; see below.
  wanted.splice(wanted.indexOf('AuthenticationFailed AuthenticationFailed'), 1)
  t.strictSame([...record.codes].sort(), wanted.sort())
})

t.test('each setting of the contract has its schema', async (t) => {
  for (const [expirationSec, code] of [
    ['integer', 'Authentication failed'],
    ['string', 'AuthenticationFailed'],
  ] as const) {
    const scene = await startScene(t, {
      settings: { 'contract-expiration-sec': expirationSec, 'contract-authentication-failed-code': code },
    })
    const record = createRecord()
    const [login] = scene.sidecar.logins
    const path = '/v2/auth/token'
    const schema = `#/components/schemas/ExpirationSec${expirationSec === 'string' ? 'String' : 'Integer'}`
    const issued = await scene.ask(post(path, JSON.stringify(login)))
    const told = await scene.ask(request('get', path, scene.authorization))
    record.check(t, path, 'post', issued, expirationSec)
    record.check(t, path, 'get', told, expirationSec)
    for (const { body } of [issued, told])
      t.equal(faults(schema, JSON.parse(body.toString()).expirationSec), '')
    const refused = await scene.ask(post(path, JSON.stringify({ ...login, secret: 'wrong' })))
    record.check(t, path, 'post', refused, code)
    t.equal(JSON.parse(refused.body.toString()).code, code)
  }
})

function post(path: string, body: string, lines = ''): Buffer {
  const bytes = Buffer.from(body)
  const length = `Content-Length: ${bytes.length}\r\n`
  const head = `POST ${path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n${lines}${length}\r\n`
  return Buffer.concat([Buffer.from(head), bytes])
}

function request(method: string, path: string, lines = ''): string {
  return `${method.toUpperCase()} ${path} HTTP/1.1\r\nHost: h\r\n${lines}\r\n`
}

/** The codes that a response may have; `undefined`, as text, for one that has none. */
function codesOf(response: string): string[] {
  const { content } = JSON.parse(JSON.stringify(DOCUMENT.components.responses[response]))
  const { schema } = content['application/json']
  const { properties } =
    DOCUMENT.components.schemas[response] === undefined
      ? schema
      : JSON.parse(JSON.stringify(DOCUMENT.components.schemas[response]))
  const { code } = properties ?? {}
  return code === undefined ? ['undefined'] : (code.enum ?? [code.const])
}
