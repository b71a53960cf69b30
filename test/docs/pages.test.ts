/**
 * Compares pages with the program:
 * settings in them are valid, docs/operations.md names the metrics and access lines of a running sidecar,
 * links lead to a file and a heading, imports follow the layers in docs/architecture.md;
 * and every answer of docs/openapi.yaml comes, with its headers and body, and no other one.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import t from 'tap'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { FAIR_USE_METRICS } from '../../src/fair-use/metrics.ts'
import { FEED_METRICS } from '../../src/feed/metrics.ts'
import { METRIC_PREFIX, METRICS } from '../../src/ops/metrics.ts'
import { TRACING_METRICS } from '../../src/tracing/metrics.ts'
import { eventually } from '../support/eventually.ts'
import { limitsFile } from '../support/limited-setup.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { basic, FORM, TOKEN_PATH } from '../support/oauth.ts'
import { NO_SERVER } from '../support/opened-database.ts'
import { databaseSetup, startPostgres } from '../support/postgres.ts'
import { parseMetrics } from '../support/prometheus.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { type Setup, type SetupOptions, startSetup } from '../support/setup.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'

const GROUPS = new Set(Object.keys(JSON.parse(readFileSync('config/sidecar.schema.json', 'utf8')).properties))
const REQUIRED = {
  upstreams: [{ prefix: '/', url: 'http://127.0.0.1:9000' }],
  keys: { directory: '/keys' },
  credentials: { file: '/credentials.yaml' },
}
const GUIDES = ['README.md', ...readdirSync('docs').map((name) => `docs/${name}`)].filter((name) =>
  name.endsWith('.md'),
)

t.test('settings in pages are valid', async (t) => {
  for (const page of GUIDES) {
    for (const [, block = ''] of readFileSync(page, 'utf8').matchAll(/^```yaml\n([\s\S]*?)^```/gm)) {
      const settings = Object(parse(block))
      const isList = Array.isArray(settings.revocations) || Array.isArray(settings.accounts)
      if (isList || !Object.keys(settings).every((key) => GROUPS.has(key))) {
        continue
      }
      const verifies = settings.keys?.jwksUrl !== undefined && { credentials: undefined }
      const file = join(t.testdir(), 'sidecar.yaml')
      writeFileSync(file, JSON.stringify({ ...REQUIRED, ...verifies, ...settings }))
      const loaded = loadConfig({ file, env: {}, flags: {} })
      t.strictSame(loaded.ok ? [] : loaded.problems, [], `${page}: ${block}`)
    }
  }
})

const PAGE = 'docs/operations.md'
const TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
/** Documented, but only with a setting that this test does not use. */
const isConditional = (name: string) => /jwks|worker|certificate|feed/.test(name)

/** Names and label names of the sidecar's own series. */
async function scrape({ adminPort }: TestSidecar): Promise<Map<string, Map<string, Set<string>>>> {
  const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text()
  const found = new Map<string, Map<string, Set<string>>>()
  for (const { name: series, labels } of parseMetrics(text)) {
    if (!series.startsWith('auth_sidecar_')) {
      continue
    }
    const name = series.replace(/(?<=_seconds)_(?:bucket|sum|count)$/, '')
    const values = found.get(name) ?? new Map<string, Set<string>>()
    found.set(name, values)
    for (const [label, value] of Object.entries(labels)) {
      if (label !== 'le') {
        values.set(label, (values.get(label) ?? new Set()).add(value))
      }
    }
  }
  return found
}

t.test('the page has every metric, label and label value, and every access log field', async (t) => {
  const upstream = await recordingUpstream(t)
  const fairUse = join(t.testdir({ 'fair-use.yaml': 'default: { inFlight: 9 }' }), 'fair-use.yaml')
  const feed = { 'feed-enabled': 'true', 'feed-subjects': '["follower"]' }
  const sidecar = await startSidecar(t, {
    upstreamUrl: upstream.url,
    settings: { 'fair-use-file': fairUse, 'tracing-endpoint': 'http://127.0.0.1:9/', ...feed },
  })
  const at = `http://127.0.0.1:${sidecar.port}/a`
  await Promise.all(Array.from({ length: 100 }, () => fetch(at))) // more than have a line each
  const withToken = { headers: { Authorization: `Bearer ${sidecar.token}`, traceparent: TRACEPARENT } }
  await fetch(at, withToken)
  upstream.reply('no HTTP')
  await fetch(at, withToken)
  const lines = () => sidecar.log.filter(({ msg }) => msg === 'request')
  await eventually(() => lines().some(({ sampled }) => sampled), 'the line that stands for many')
  await eventually(() => lines().some(({ cause }) => cause), 'the line of the failure')

  const metrics = await scrape(sidecar)
  const documented = tableUnder(PAGE, '## Metrics').filter((row) => 'metric' in row && row['meaning'])
  const rows = documented.flatMap(({ metric, labels }) =>
    codeIn(metric).map((name) => [name, codeIn(labels)] as const),
  )
  const names = [METRICS, FAIR_USE_METRICS, FEED_METRICS, TRACING_METRICS].flatMap((metrics) =>
    Object.keys(metrics),
  )
  const declared = names.sort().map((name) => `${METRIC_PREFIX}${name}`)
  t.strictSame(rows.map(([name]) => name).sort(), declared.sort(), 'every declared metric')
  const found = [...metrics.keys(), ...declared.filter(isConditional)]
  t.strictSame([...new Set(found)].sort(), declared, 'every metric is created')
  for (const [name, labels] of rows) {
    const actual = metrics.get(name)
    if (actual?.size) {
      t.strictSame([...labels].sort(), [...actual.keys()].sort(), name)
    }
  }

  const text = readFileSync(PAGE, 'utf8')
  const [, outcomes = ''] = /^\| `outcome` \| (.*) \|$/m.exec(text) ?? []
  const valuesOf = (name: string, label: string) => [...(metrics.get(name)?.get(label) ?? [])].sort()
  t.strictSame(codeIn(outcomes).sort(), valuesOf('auth_sidecar_upstream_requests_total', 'outcome'))
  for (const [title, name] of [
    ['token checks', 'auth_sidecar_token_checks_total'],
    ['failed logins', 'auth_sidecar_token_issue_failures_total'],
  ]) {
    const [, reasons = ''] = new RegExp(`^\\| \`reason\` of ${title} \\| (.*) \\|$`, 'm').exec(text) ?? []
    t.strictSame(codeIn(reasons).sort(), valuesOf(name ?? '', 'reason'))
  }

  const fields = new Set(lines().flatMap((line) => Object.keys(line)))
  for (const field of ['level', 'time', 'msg']) {
    fields.delete(field)
  }
  const table = tableUnder(PAGE, '## Logs').flatMap(({ field }) => codeIn(field))
  const bySituation = ['firstByteMs', 'sampled'] // of requests that an upstream answered, and of a flood
  t.strictSame(table.sort(), [...new Set([...fields, ...bySituation])].sort())
})

const read = (path: string) => readFileSync(path, 'utf8')

/** Markdown files that git tracks, or would. */
const tracked = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'])
const PAGES = String(tracked.stdout ?? '')
  .split('\n')
  .filter((path) => path !== '' && existsSync(path))

/** A page without its code blocks. */
const prose = (path: string) => read(path).replaceAll(/^( *)(```+)[^\n]*\n[\s\S]*?^\1\2$/gm, '')

/** The anchors that GitHub gives the headings of a page. */
function anchors(path: string): Set<string> {
  const seen = new Map<string, number>()
  const found = new Set<string>()
  for (const [, heading = ''] of prose(path).matchAll(/^#{1,6} +(.+?) *#*$/gm)) {
    const text = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
    const slug = text.replaceAll(/[^\p{L}\p{N}\p{M}\p{Pc} -]/gu, '').replaceAll(' ', '-')
    const times = seen.get(slug) ?? 0
    seen.set(slug, times + 1)
    found.add(times === 0 ? slug : `${slug}-${times}`)
  }
  for (const [, id = ''] of prose(path).matchAll(/<a (?:id|name)="([^"]+)"/g)) {
    found.add(id)
  }
  return found
}

/** Targets of links and images. */
function targets(path: string): string[] {
  const text = prose(path).replaceAll(/`[^`\n]*`/g, '')
  const inline = [...text.matchAll(/\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g)]
  const defined = [...text.matchAll(/^ {0,3}\[[^\]]+\]: +(\S+)/gm)]
  return [...inline, ...defined].map(([, target = '']) => target)
}

const HAS_SCHEME = /^(?:[a-z][a-z0-9+.-]*:|\/\/)/i

function partition(texts: readonly string[], isFirst: (text: string) => boolean) {
  return [texts.filter(isFirst), texts.filter((text) => !isFirst(text))] as const
}

/** Whether a relative link of a page leads to a file, and its anchor to a heading. */
function hasTarget(page: string, target: string): boolean {
  const [path = '', anchor] = decodeURIComponent(target).split('#')
  const file = path === '' ? page : join(dirname(page), path)
  if (!existsSync(file)) {
    return false
  }
  return anchor === undefined || !file.endsWith('.md') || anchors(file).has(anchor)
}

t.test('every relative link has an existing file and heading', { skip: noGit() }, async (t) => {
  let links = 0
  for (const page of PAGES) {
    const [absolute, relative] = partition(targets(page), (target) => HAS_SCHEME.test(target))
    for (const target of absolute) {
      t.match(target, /^(?:https|mailto):/, `${page}: ${target}`)
    }
    for (const target of relative) {
      t.ok(hasTarget(page, target), `${page}: ${target} exists`)
    }
    links += relative.length
  }
  t.ok(PAGES.length >= 10 && links > 100, `${links} links in ${PAGES.length} pages`)
})

t.test('every file named by a page exists', async (t) => {
  const roots = ['', 'src/', 'docs/']
  for (const page of PAGES.filter((path) => path !== 'CHANGELOG.md')) {
    for (const [, path = ''] of read(page).matchAll(/(?<![\w./-])((?:[\w-]+\/)+[\w.-]+\.(?:test\.)?ts)\b/g)) {
      const exists = roots.some((root) => existsSync(root + path))
      t.ok(exists, `${page}: ${path}`)
    }
  }
})

t.test('every guide is listed in the index, which the README links', async (t) => {
  const listed = new Set(targets('docs/README.md'))
  for (const name of readdirSync('docs')) {
    if (/\.(?:md|yaml)$/.test(name) && name !== 'README.md') {
      t.ok(listed.has(name), name)
    }
  }
  t.ok(targets('README.md').includes('docs/README.md'))
})

function noGit(): string | false {
  return PAGES.length > 0 ? false : 'needs git, and a git checkout'
}

const [, table = ''] = readFileSync('docs/architecture.md', 'utf8').split('| folder | contains |')
/** The row of each folder, and of each file beside them. */
const rowOf = new Map(
  table
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .flatMap((line, row) =>
      [...(line.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map((match) => [match[1], row]),
    ),
)
/** `token/verify.ts`: `token/`; `app.ts` is itself. */
const unitOf = (path: string) => path.replace(/\/.*/, '/')

const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'))

t.test('a file of src imports only from its own row of the table and the rows below', async (t) => {
  for (const file of files) {
    t.ok(rowOf.has(unitOf(file)), `${file} is in the table`)
    const imports = readFileSync(join('src', file), 'utf8').matchAll(/(?:from |import\()'(\.[^']+\.ts)'/g)
    for (const [, path = ''] of imports) {
      const imported = normalize(join(dirname(file), path))
      const isBelow = Number(rowOf.get(unitOf(imported))) >= Number(rowOf.get(unitOf(file)))
      if (!isBelow) {
        t.fail(`${file} imports ${imported}`)
      }
    }
  }
  t.ok(files.length > 50)
})

t.test('the upstream client stands alone', async (t) => {
  const own = files.filter((file) => file.startsWith('upstream/'))
  for (const file of own) {
    const folders = [...read(join('src', file)).matchAll(/(?:from |import\()'\.\.\/([^/']+)/g)]
    for (const [, folder = ''] of folders) {
      t.ok(['http', 'base'].includes(folder), `${file} imports ${folder}/`)
    }
  }
  t.ok(own.length > 5)
})

t.test('comments of src and docs/architecture.md name files and identifiers that exist', async (t) => {
  const comment = /\/\*\*[\s\S]*?\*\/|(?<=^|\s)\/\/ .*/g
  const sources = files.map((file) => read(join('src', file)))
  const exists = new Set(sources.join('\n').replace(comment, '').match(/#?\w+/g))
  const own = sources.filter((_, at) => files[at] !== 'http/node-http.ts') // it names functions of Node
  const comments = own.flatMap((source) => source.match(comment) ?? [])
  const page = read('docs/architecture.md')
  const text = [page, ...comments].join('\n')
  const names = text.match(/(?<=`)[a-z]+[A-Z]\w*(?=`)|(?<=[\s`.])#[a-z]\w*/g) ?? []
  const quotedPaths = text.match(/(?<=`)[\w/-]+\.ts(?=`)/g) ?? []
  const drawnPaths = page.match(/(?<= )[\w/-]+\.ts(?=[ ,\n])/g) ?? []
  const paths = [...quotedPaths, ...drawnPaths]
  const isMissing = (path: string) => !files.some((file) => `/${file}`.endsWith(`/${path}`))
  t.strictSame([...names.filter((name) => !exists.has(name)), ...paths.filter(isMissing)], [])
  t.ok(names.length > 100 && paths.length > 100)
})

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

/** Asks, and checks the answer against the document; returns its body. */
async function ask(setup: Setup, method: string, path: string, lines = '', body?: string) {
  const framing = body === undefined ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`
  const end = lines === 'half' ? '' : `\r\n${body ?? ''}`
  const bytes = `${method.toUpperCase()} ${path} HTTP/1.1\r\nHost: h\r\n${framing}${lines}${end}`
  const response = await setup.ask(Buffer.from(bytes), { head: method === 'head' })
  const what = `${method} ${path} ${response.status}`
  const name = paths[path]?.[method]?.responses[response.status]?.$ref.split('/').at(-1) ?? ''
  const documented = components.responses[name]
  if (documented === undefined) {
    throw new Error(`${what} is not documented`)
  }
  seen.add(what)
  const wrong = Object.entries(documented.headers).flatMap(([header, { $ref }]) => {
    const value = response.headers[header.toLowerCase()]
    const isOptional = components.headers[$ref.split('/').at(-1) ?? '']?.required !== true
    return value === undefined && isOptional ? [] : faults(`${$ref}/schema`, value)
  })
  const known = new Set([...COMMON, ...Object.keys(documented.headers).map((header) => header.toLowerCase())])
  wrong.push(...Object.keys(response.headers).filter((header) => !known.has(header)))
  const json = response.body.length === 0 ? undefined : JSON.parse(response.body.toString())
  if (method !== 'head' && documented.content !== undefined) {
    wrong.push(...faults(`#/components/responses/${name}/content/application~1json/schema`, json))
  }
  t.strictSame(wrong, [], what)
  return json
}

t.test('docs/openapi.yaml is an OpenAPI 3.1 document', async (t) => {
  const validator = new Validator()
  const { valid, errors } = await validator.validate({ ...document() })
  t.same([valid, errors, validator.version], [true, undefined, '3.1'])
})

/** Of OAuth, which needs other settings, or of all else. */
type Group = 'oauth' | 'other'

const groupOf = (path: string): Group => (/oauth|well-known/.test(path) ? 'oauth' : 'other')

function documentedOperations(group: Group) {
  return Object.entries(paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method] !== undefined && groupOf(path) === group).map((method) => ({
      method,
      path,
    })),
  )
}

/** Such as `get /v2/auth/token 200`. */
function documentedResponses(group: Group): string[] {
  return documentedOperations(group).flatMap(({ method, path }) => {
    const { responses = {} } = paths[path]?.[method] ?? {}
    return Object.keys(responses).map((status) => `${method} ${path} ${status}`)
  })
}

t.test('every documented response occurs as documented, and no other one', async (t) => {
  let broken = false
  const now = () => (broken ? JSON.parse('the clock is broken') : Date.now())
  const settings = {
    'limits-login-failures-count': '1',
    'timeouts-idle-seconds': '0.3',
    'timeouts-headers-seconds': '0.3',
    'forward-auth-path': '/_auth',
    'links-enabled': 'true',
    'trusted-issuers': '[{ issuer: away, jwksUrl: "http://127.0.0.1:9/", audience: a, accountPrefix: "a:" }]',
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
    const signing = t.capture(crypto.subtle, 'sign', () => Promise.reject(new Error('signing fails')))
    await ask(setup, 'post', path, '', JSON.stringify(setup.sidecar.logins[0]))
    signing.restore()
  }
  await askForLinks(setup)
  await askForLinks(other)
  const failing = t.capture(crypto.subtle, 'sign', () => Promise.reject(new Error('signing fails')))
  await ask(setup, 'post', links, setup.authorization, '{"method":"GET","target":"/b"}')
  failing.restore()
  await ask(setup, 'post', links, `${setup.authorization}Content-Length: 9\r\n`)
  for (const { method, path } of documentedOperations('other')) {
    for (const lines of ['a: b'.repeat(9999), 'Expect: 200-ok', 'Host: h2']) {
      await ask(setup, method, path, `${lines}\r\n`)
    }
    if (method === 'post') {
      continue
    }
    await ask(setup, method, path, 'half')
    await askWithTokens(setup, method, path)
    await askWithTokens(other, method, path)
    broken = true
    await ask(setup, method, path, setup.authorization)
    broken = false
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
    const signing = t.capture(crypto.subtle, 'sign', () => Promise.reject(new Error('signing fails')))
    await ask(setup, 'post', TOKEN_PATH, FORM + basic('OTHER', 'a secret'), grant)
    signing.restore()
    for (const { method, path } of documentedOperations('oauth')) {
      for (const lines of ['a: b'.repeat(9999), 'Expect: 200-ok', 'Host: h2']) {
        await ask(setup, method, path, `${lines}\r\n`)
      }
      if (method === 'get') {
        await ask(setup, method, path, 'half')
        await ask(setup, method, path)
      }
    }
    for (const documented of documentedResponses('oauth')) {
      t.ok(seen.has(documented), documented)
    }
  },
)
