/** The goals of the product's performance, whether a run reached them, and the tables of a run. */
import type { Section } from './compare.ts'
import { FEW, MANY, STRANGERS } from './flood.ts'
import { FEW_LINES, MANY_LINES } from './growth.ts'
import { DATABASE, LARGE_FILE, MANY_REVOCATIONS, SMALL_FILE } from './loading.ts'
import { WORST_WAYS } from './neighbours.ts'
import { MANY_UPSTREAMS, SEEN_PAGE, SOME_UPSTREAMS, UNSEEN_PAGE } from './scrapes.ts'

/** Reads a figure of a run; `NaN` where it was not measured. */
type Find = (scenario: string, row: string, figure: string) => number

/** What is compared, what was found, the bound and the unit. */
type Goal = readonly [goal: string, found: number, '<=' | '>=', bound: number, unit: string]

/** From Node 24 on, the server costs less, and the goals are stricter. */
function goals(find: Find, nodeMajor: number): readonly Goal[] {
  const newer = nodeMajor >= 24
  const toLimit = newer ? 1.3 : 1.6
  const cpu = (scenario: string, other: string) =>
    find(scenario, 'sidecar', 'CPU µs') / find(scenario, other, 'CPU µs')
  const speed = (kind: string) =>
    find('objects', `${kind}, sidecar`, 'MB/s') / find('objects', `${kind}, nginx`, 'MB/s')
  const growth = (name: string) => find('memory', name, 'growth MB')
  const waiting = find('half-load', 'sidecar', 'p99 ms') - find('half-load', 'nginx', 'p99 ms')
  const judging = (kind: string) => find('scoped', kind, 'CPU µs') - find('scoped', 'unrestricted', 'CPU µs')
  const ofBasic = find('basic', 'basic', 'CPU µs') - find('basic', 'token', 'CPU µs')
  return [
    ['cached token, CPU to Envoy', cpu('hot', 'envoy'), '<=', newer ? 0.6 : 0.7, 'x'],
    ['cached token, CPU to the limit', cpu('hot', 'limit'), '<=', toLimit, 'x'],
    ['cached token, CPU to nginx', cpu('hot', 'nginx'), '<=', newer ? 2.6 : 3, 'x'],
    ['restricted token, CPU above an unrestricted one', judging('restricted'), '<=', 1.5, ' µs'],
    ['link, CPU above an unrestricted token', judging('link'), '<=', 2, ' µs'],
    ['remembered login by HTTP Basic, CPU above a cached token', ofBasic, '<=', 3, ' µs'],
    ['tracing, not sampled', find('tracing', 'not sampled by its caller', 'CPU µs'), '<=', 0.3, ' µs'],
    ['tracing, sampled', find('tracing', 'sampled', 'CPU µs'), '<=', 15, ' µs'],
    ['new connection, CPU to Envoy', cpu('connections', 'envoy'), '<=', newer ? 1 : 1.5, 'x'],
    ['first use of a token, CPU to HAProxy', cpu('cold', 'haproxy'), '<=', 1.6, 'x'],
    ...['10 MiB down', '10 MiB up', '1 GiB down', '1 GiB up'].map(
      (kind): Goal => [`${kind}, MB/s to nginx`, speed(kind), '>=', 0.9, 'x'],
    ),
    ['half load, p99 above nginx', waiting, '<=', 1, ' ms'],
    ['ready after exec', find('start', 'sidecar', 'ready ms'), '<=', 400, ' ms'],
    ['idle', find('start', 'sidecar', 'RSS MB'), '<=', 80, ' MB'],
    ['10,000 cached tokens', find('tokens', 'difference', 'growth MB'), '<=', 10, ' MB'],
    ...['10 GiB down', '10 GiB up'].map((name): Goal => [name, growth(name), '<=', 40, ' MB']),
    ['200 slow readers', growth('200 slow readers'), '<=', 100, ' MB'],
    ['200 stalled uploads', growth('200 stalled uploads'), '<=', 100, ' MB'],
    ...floodGoals(find),
    ...fairUseGoals(find),
    ...loadingGoals(find),
    ...growthGoals(find, toLimit),
    ['logins', find('logins', 'sidecar', 'requests/s'), '>=', 3000, ' per second'],
    ['OAuth logins', find('logins', 'oauth logins', 'requests/s'), '>=', 3000, ' per second'],
  ]
}

function floodGoals(find: Find): Goal[] {
  const few = find('flood', FEW, 'requests/s')
  const many = find('flood', MANY, 'requests/s')
  const turn = (row: string): Goal => [
    `${row}: longest turn`,
    find('flood', row, 'longest turn ms'),
    '<=',
    50,
    ' ms',
  ]
  return [
    [`${STRANGERS}: in 1 s`, find('flood', STRANGERS, 'in 1 s %'), '>=', 95, ' %'],
    [`${MANY}, requests/s to those of ${FEW}`, many / few, '>=', 0.8, 'x'],
    turn(STRANGERS),
    turn(MANY),
  ]
}

function fairUseGoals(find: Find): Goal[] {
  const cpu = (row: string) => find('limits', row, 'CPU µs') - find('limits', 'no limits', 'CPU µs')
  const limited = ['requests', 'concurrency', 'bytes down', 'bytes up'].flatMap((way): Goal[] => {
    const figure = (name: string) => find('limited-neighbours', `${way}, limited`, name)
    return [
      [`beside limited ${way}: p99 to alone`, figure('p99 to alone'), '<=', 1.1, 'x'],
      [`beside limited ${way}: served to alone`, figure('served to alone'), '>=', 0.9, 'x'],
    ]
  })
  const worst = WORST_WAYS.map(
    ({ name }): Goal => [
      `beside ${name}: p99 to alone`,
      find('neighbours', name, 'p99 to alone'),
      '<=',
      2,
      'x',
    ],
  )
  const paced = ['1024 MiB down', '1024 MiB up'].flatMap((name): Goal[] => [
    [`${name} at 10 MB/s, at least`, find('pacing', name, 'MB/s'), '>=', 9, ' MB/s'],
    [`${name} at 10 MB/s, at most`, find('pacing', name, 'MB/s'), '<=', 11, ' MB/s'],
    [`${name} at 10 MB/s, memory`, find('pacing', name, 'growth MB'), '<=', 40, ' MB'],
  ])
  return [
    ['account with limits, CPU above none', cpu('account with limits'), '<=', 1, ' µs'],
    ['account without limits, CPU above none', cpu('account without limits'), '<=', 0.3, ' µs'],
    ['account in use', find('accounts', 'difference', 'bytes each'), '<=', 200, ' bytes'],
    ['account that is quiet', find('accounts', 'difference', 'bytes each, quiet'), '<=', 20, ' bytes'],
    ...limited,
    ...worst,
    ...paced,
  ]
}

function loadingGoals(find: Find): Goal[] {
  const revocations = (name: string) => find('loading', MANY_REVOCATIONS, name)
  const turns = [SMALL_FILE, LARGE_FILE, DATABASE].map(
    (row): Goal => [`${row}: longest turn`, find('loading', row, 'longest turn ms'), '<=', 10, ' ms'],
  )
  return [
    [`${LARGE_FILE}: peak`, find('loading', LARGE_FILE, 'peak MB'), '<=', 256, ' MB'],
    [`${MANY_REVOCATIONS}: ready`, revocations('ready ms'), '<=', 1500, ' ms'],
    [`${MANY_REVOCATIONS}: a change is active`, revocations('active ms'), '<=', 3000, ' ms'],
    [`${MANY_REVOCATIONS}: memory`, revocations('RSS MB'), '<=', 200, ' MB'],
    [`${MANY_REVOCATIONS}: p99 beside a change`, revocations('p99 to quiet'), '<=', 3, 'x'],
    ...turns,
  ]
}

/** @param toLimit - what a request may cost beside `limit` */
function growthGoals(find: Find, toLimit: number): Goal[] {
  const scrapes = [MANY_UPSTREAMS, SOME_UPSTREAMS].map((count) => `scrape, ${count} upstreams`)
  const turns = [...scrapes, UNSEEN_PAGE, SEEN_PAGE].map(
    (row): Goal => [`${row}: longest turn`, find('scrapes', row, 'longest turn ms'), '<=', 20, ' ms'],
  )
  const ofLines = (count: number, peer: string) => find('header-lines', `${count} lines, ${peer}`, 'CPU µs')
  const ofLine = (peer: string) =>
    (ofLines(MANY_LINES, peer) - ofLines(FEW_LINES, peer)) / (MANY_LINES - FEW_LINES)
  const toNginx = ['64 KiB up', '100 MiB up'].map((size): Goal => {
    const cpu = (peer: string) => find('uploads', `${size}, ${peer}`, 'CPU ms/MiB')
    return [`${size}, CPU to nginx`, cpu('sidecar') / cpu('nginx'), '<=', 1, 'x']
  })
  return [
    ['idle, CPU', find('idle', 'sidecar', 'CPU s/h'), '<=', 8, ' s an hour'],
    ['idle, memory', find('idle', 'sidecar', 'RSS MB'), '<=', 80, ' MB'],
    ...turns,
    ['20,000 tokens, CPU', find('evictions', 'sidecar', 'CPU µs'), '<=', 240, ' µs'],
    ['header line, CPU', ofLine('sidecar'), '<=', 1.1, ' µs'],
    ['1 KiB up, CPU', find('uploads', '1 KiB up, sidecar', 'CPU µs'), '<=', 60, ' µs'],
    ...toNginx,
    [
      'after pauses, CPU to the limit',
      find('pauses', 'sidecar, after pauses', 'CPU to limit'),
      '<=',
      toLimit,
      'x',
    ],
    ['warm, CPU to the limit', find('pauses', 'sidecar, warm', 'CPU to limit'), '<=', toLimit, 'x'],
  ]
}

/** The table of the goals that the run measured. In: its sections by scenario. */
export function goalsTable(results: Readonly<Record<string, Section>>, nodeMajor: number): string {
  const find: Find = (scenario, row, name) =>
    results[scenario]?.rows.find((one) => one.name === row)?.figures[name] ?? Number.NaN
  const measured = goals(find, nodeMajor).filter(([, found]) => !Number.isNaN(found))
  const lines = measured.map(([goal, found, sign, bound, unit]) => {
    const text = unit === 'x' ? found.toFixed(2) : found.toFixed(found < 10 ? 1 : 0)
    const reached = sign === '<=' ? found <= bound : found >= bound
    const asked = `at ${sign === '<=' ? 'most' : 'least'} ${bound}${unit}`
    return `| ${goal} | ${asked} | ${text}${unit} | ${reached ? 'reached' : '**missed**'} |`
  })
  return ['| goal | asked | found | |', '|---|---:|---:|---|', ...lines].join('\n')
}

/** A section as a table. A column is a figure: its name is the heading. */
export function sectionTable({ rows }: Section): string {
  const columns = [...new Set(rows.flatMap(({ figures }) => Object.keys(figures)))]
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [
    line(['', ...columns]),
    line(['---', ...columns.map(() => '---:')]),
    ...rows.map(({ name, figures }) => line([name, ...columns.map((column) => figureText(figures[column]))])),
  ].join('\n')
}

/** Three significant digits or more. */
function figureText(value = Number.NaN): string {
  if (Number.isNaN(value)) {
    return '–'
  }
  if (value < 10) {
    return value.toFixed(2)
  }
  return value.toFixed(value < 1000 ? 1 : 0)
}
