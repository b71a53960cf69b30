/**
 * Compares pages with the program: settings in them are valid, docs/operations.md names the metrics and
 * access lines of a running sidecar, and links lead to a file and a heading.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { FAIR_USE_METRICS } from '../../src/fair-use/metrics.ts'
import { FEED_METRICS } from '../../src/feed/metrics.ts'
import { METRIC_PREFIX, METRICS } from '../../src/ops/metrics.ts'
import { TRACING_METRICS } from '../../src/tracing/metrics.ts'
import { eventually } from '../support/eventually.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { parseMetrics } from '../support/prometheus.ts'
import { rawClient } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'

const read = (path: string) => readFileSync(path, 'utf8')

const GROUPS = new Set(Object.keys(JSON.parse(read('config/sidecar.schema.json')).properties))
const REQUIRED = {
  upstreams: [{ prefix: '/', url: 'http://127.0.0.1:9000' }],
  keys: { directory: '/keys' },
  credentials: { file: '/credentials.yaml' },
}
const inDocs = readdirSync('docs').filter((name) => name.endsWith('.md'))
const GUIDES = ['README.md', ...inDocs.map((name) => `docs/${name}`)]

t.test('settings in pages are valid', async (t) => {
  for (const page of GUIDES) {
    for (const [, block = ''] of read(page).matchAll(/^```yaml\n([\s\S]*?)^```/gm)) {
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
  const client = await rawClient(t, sidecar.port)
  client.send('GET /a HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(300)) // more in a second than have a line each
  for (let count = 0; count < 300; count++) {
    await client.response()
  }
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

  const text = read(PAGE)
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
