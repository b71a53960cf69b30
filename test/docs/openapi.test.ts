/**
 * Compares docs/openapi.yaml with the program: every response in it occurs, with its headers and body, and no
 * other one.
 */
import { readFileSync } from 'node:fs'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { BreakableClock } from '../support/breakable-clock.ts'
import { limitsFile } from '../support/limited-setup.ts'
import { basic, FORM, TOKEN_PATH } from '../support/oauth.ts'
import { NO_SERVER } from '../support/opened-database.ts'
import { databaseSetup, startPostgres } from '../support/postgres.ts'
import type { RawResponse } from '../support/raw-client.ts'
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

const document = (): Document => parse(readFileSync('docs/openapi.yaml', 'utf8'))
const { paths, components } = document()
const ajv = new Ajv2020({ strict: false, allErrors: true }).addSchema(document(), 'openapi')

/** On every answer of a server; not worth a word in the document. */
const COMMON = ['connection', 'content-type', 'date', 'keep-alive']
const PATHS = ['/v2/auth/token', '/v2/auth/token/'] as const
const METHODS = ['get', 'head', 'post'] as const

const faults = (pointer: string, value: unknown) =>
  ajv.validate({ $ref: `openapi${pointer}` }, value) ? [] : [`${pointer}: ${ajv.errorsText()}`]

const seen = new Set<string>()

/** Sends a request, and compares the response with the document; returns its body. */
async function ask(setup: Setup, method: string, path: string, lines = '', body?: string) {
  const framing = body === undefined ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`
  const bytes = `${headStart(method, path)}${framing}${lines}\r\n${body ?? ''}`
  return exchange(setup, method, path, bytes)
}

/** Sends a head that never ends. */
const askUnfinished = (setup: Setup, method: string, path: string) =>
  exchange(setup, method, path, headStart(method, path))

const headStart = (method: string, path: string) => `${method.toUpperCase()} ${path} HTTP/1.1\r\nHost: h\r\n`

async function exchange(setup: Setup, method: string, path: string, bytes: string) {
  const response = await setup.ask(Buffer.from(bytes), { head: method === 'head' })
  const what = `${method} ${path} ${response.status}`
  const name = nameIn(paths[path]?.[method]?.responses[response.status])
  const documented = components.responses[name]
  if (documented === undefined) {
    throw new Error(`${what} is not documented`)
  }
  seen.add(what)
  const wrong = headerFaults(response.headers, documented.headers)
  const json = response.body.length === 0 ? undefined : JSON.parse(response.body.toString())
  if (method !== 'head' && documented.content !== undefined) {
    wrong.push(...faults(`#/components/responses/${name}/content/application~1json/schema`, json))
  }
  t.strictSame(wrong, [], what)
  return json
}

const nameIn = (reference?: Reference) => reference?.$ref.split('/').at(-1) ?? ''

function headerFaults(headers: RawResponse['headers'], documented: Record<string, Reference>): string[] {
  const wrong: string[] = []
  const known = new Set(COMMON)
  for (const [header, reference] of Object.entries(documented)) {
    known.add(header.toLowerCase())
    const value = headers[header.toLowerCase()]
    const isRequired = components.headers[nameIn(reference)]?.required === true
    if (value !== undefined || isRequired) {
      wrong.push(...faults(`${reference.$ref}/schema`, value))
    }
  }
  const others = Object.keys(headers).filter((header) => !known.has(header))
  return [...wrong, ...others]
}

/** Sends requests while no token can be signed. */
async function whileSigningFails(t: Test, act: () => Promise<unknown>): Promise<void> {
  const signing = t.capture(crypto.subtle, 'sign', () => Promise.reject(new Error('signing fails')))
  await act()
  signing.restore()
}

t.test('docs/openapi.yaml is an OpenAPI 3.1 document', async (t) => {
  const validator = new Validator()
  const { valid, errors } = await validator.validate({ ...document() })
  t.equal(valid, true, JSON.stringify(errors))
  t.equal(validator.version, '3.1')
})

/** Of OAuth, which needs other settings, or of all else. */
type Group = 'oauth' | 'other'

const groupOf = (path: string): Group => (/oauth|well-known/.test(path) ? 'oauth' : 'other')

function documentedOperations(group: Group) {
  const found: { method: string; path: string }[] = []
  for (const [path, item] of Object.entries(paths)) {
    for (const method of METHODS) {
      if (item[method] !== undefined && groupOf(path) === group) {
        found.push({ method, path })
      }
    }
  }
  return found
}

/** Such as `get /v2/auth/token 200`. */
function documentedResponses(group: Group): string[] {
  return documentedOperations(group).flatMap(({ method, path }) => {
    const { responses = {} } = paths[path]?.[method] ?? {}
    return Object.keys(responses).map((status) => `${method} ${path} ${status}`)
  })
}

t.test('every documented response occurs as documented, and no other one', async (t) => {
  const clock = new BreakableClock()
  const settings = {
    'limits-login-failures-count': '1',
    'timeouts-idle-seconds': '0.3',
    'timeouts-headers-seconds': '0.3',
    'forward-auth-path': '/_auth',
    'links-enabled': 'true',
    'trusted-issuers': '[{ issuer: away, jwksUrl: "http://127.0.0.1:9/", audience: a, accountPrefix: "a:" }]',
  }
  const start = (more: SetupOptions['settings']) =>
    startSetup(t, { now: clock.now, settings: { ...settings, ...more } })
  const setup = await start({ 'identity-assertion-enabled': 'true' })
  const other = await start({
    'contract-refused-token-status': '401',
    'contract-expiration-sec': 'string',
    'contract-authentication-failed-code': 'AuthenticationFailed',
    'forward-auth-max-age-seconds': '9',
  })
  const past = { now: Date.now() - 7_200_000 }
  const unproven = `Authorization: Bearer ${await setup.sidecar.mint({ claims: { iss: 'away' } })}\r\n`
  const logIn = (path: string, accountId: string) =>
    ask(setup, 'post', path, '', JSON.stringify({ ...setup.sidecar.logins[0], accountId }))
  const links = '/v2/auth/links'
  const askForLinks = async (one: typeof setup) => {
    const scope = 'storage.read:/a'
    const narrow = `Authorization: Bearer ${await one.sidecar.mint({ claims: { scope } })}\r\n`
    const body = '{"method":"GET","target":"/b"}'
    await ask(one, 'post', links, one.authorization, body)
    await ask(one, 'post', links, one.authorization, '{}')
    await ask(one, 'post', links, narrow, body)
    await ask(one, 'post', links, unproven, '{}')
    await ask(one, 'post', links, '', '{}')
  }
  const askWithTokens = async (one: typeof setup, method: string, path: string) => {
    const expired = `Authorization: Bearer ${await one.sidecar.mint(past)}\r\n`
    const narrow = `Authorization: Bearer ${await one.sidecar.mint({ claims: { scope: 'storage.read:/' } })}\r\n`
    for (const lines of [one.authorization, expired, narrow, unproven, '']) {
      await ask(one, method, path, lines)
    }
  }
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
    await whileSigningFails(t, () => ask(setup, 'post', path, '', JSON.stringify(setup.sidecar.logins[0])))
  }
  await askForLinks(setup)
  await askForLinks(other)
  await whileSigningFails(t, () =>
    ask(setup, 'post', links, setup.authorization, '{"method":"GET","target":"/b"}'),
  )
  await ask(setup, 'post', links, `${setup.authorization}Content-Length: 9\r\n`)
  for (const { method, path } of documentedOperations('other')) {
    for (const lines of ['a: b'.repeat(9999), 'Expect: 200-ok', 'Host: h2']) {
      await ask(setup, method, path, `${lines}\r\n`)
    }
    if (method === 'post') {
      continue
    }
    await askUnfinished(setup, method, path)
    await askWithTokens(setup, method, path)
    await askWithTokens(other, method, path)
    clock.isBroken = true
    await ask(setup, method, path, setup.authorization)
    clock.isBroken = false
  }
  const limited = await start({
    'fair-use-file': await limitsFile(t, 'default: { requestsPerSecond: 0.001, burst: 1, inFlight: 9 }'),
  })
  await ask(limited, 'get', '/_auth', limited.authorization)
  await ask(limited, 'get', '/_auth', limited.authorization)
  for (const documented of documentedResponses('other')) {
    t.ok(seen.has(documented), documented)
  }
})

const postgres = await startPostgres(t)

t.test(
  'every documented response of OAuth occurs as documented',
  { skip: postgres === undefined && NO_SERVER },
  async (t) => {
    if (postgres === undefined) {
      return
    }
    const credentials = ['AK', 'OTHER'].map((accessKey) => ({ accountId: accessKey, accessKey }))
    const { flags } = await databaseSetup(t, postgres.createDatabase, credentials, 'a secret')
    const settings = {
      ...flags,
      'contract-logout': 'true',
      'oauth-enabled': 'true',
      'token-issuer': 'https://auth.example',
      'limits-login-failures-count': '1',
      'timeouts-idle-seconds': '0.3',
      'timeouts-headers-seconds': '0.3',
    }
    const setup = await startSetup(t, { settings })
    const grant = 'grant_type=client_credentials'
    const { access_token: token } = await ask(
      setup,
      'post',
      TOKEN_PATH,
      FORM + basic('OTHER', 'a secret'),
      `${grant}&scope=storage.read:/a`,
    )
    const posts = [
      { path: TOKEN_PATH, good: grant },
      { path: '/v2/oauth/revoke', good: `token=${token}` },
    ]
    for (const { path, good } of posts) {
      const client = FORM + basic('OTHER', 'a secret')
      const askAs = (lines: string) => ask(setup, 'post', path, FORM + lines, good)
      await ask(setup, 'post', path, client, good)
      await ask(setup, 'post', path, client, '')
      await ask(setup, 'post', path, `${client}Content-Length: 9\r\n`)
      await askAs(basic(`nobody at ${path}`, 'x'))
      await askAs(basic(`nobody at ${path}`, 'x'))
    }
    await whileSigningFails(t, () => ask(setup, 'post', TOKEN_PATH, FORM + basic('OTHER', 'a secret'), grant))
    for (const { method, path } of documentedOperations('oauth')) {
      for (const lines of ['a: b'.repeat(9999), 'Expect: 200-ok', 'Host: h2']) {
        await ask(setup, method, path, `${lines}\r\n`)
      }
      if (method === 'get') {
        await askUnfinished(setup, method, path)
        await ask(setup, method, path)
      }
    }
    for (const documented of documentedResponses('oauth')) {
      t.ok(seen.has(documented), documented)
    }
  },
)
