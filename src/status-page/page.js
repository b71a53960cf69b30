/**
 * Fills the status page from status.json, every five seconds.
 * When the sidecar does not respond, the page says so and keeps what it showed.
 * Browsers run this file as it is; `npm run types` checks it by the types in its comments.
 * @typedef {import('../ops/status-document.ts').StatusDocument} StatusDocument
 * @typedef {Node | string | null | undefined} Child
 */

const REFRESH_MS = 5000
const TIMEOUT_MS = 4000
const NAME = 'Storage auth sidecar'

/**
 * Creates an element. Text is set as text, never read as HTML.
 * @type {(name: string, attributes: Record<string, string>, ...children: Child[]) => HTMLElement}
 */
function h(name, attributes, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value)
  }
  element.append(...children.flatMap((child) => child ?? []))
  return element
}

const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id))
/** @type {(id: string, ...children: (Node | string)[]) => void} */
const fill = (id, ...children) => byId(id).replaceChildren(...children)
const quiet = (/** @type {Child[]} */ ...children) => h('span', { class: 'quiet' }, ...children)
const note = (/** @type {Child[]} */ ...children) => h('div', { class: 'quiet' }, ...children)
const code = (/** @type {string} */ text) => h('code', {}, text)
const bold = (/** @type {string} */ text) => h('b', {}, text)
const time = (/** @type {string} */ at, /** @type {string} */ text) => h('time', { datetime: at }, text)

/** @param {Intl.NumberFormatOptions} options */
const format = (options) => new Intl.NumberFormat('en-US', options).format
/** `1,234,567` */
const count = format({ maximumFractionDigits: 0 })
/** `0`, `0.041`, `3.25`, `1,234` */
const digits = format({
  maximumSignificantDigits: 3,
  maximumFractionDigits: 0,
  roundingPriority: 'morePrecision',
})
/** `0.03%`, `12.5%`; never `100%` of what is not all, nor `0%` of what is something. */
const share = format({ style: 'percent', maximumSignificantDigits: 3, roundingMode: 'trunc' })
/** @type {(show: (value: number) => string) => (value: number | null) => string} */
const orDash = (show) => (value) => (value === null ? '–' : show(value))
const amount = orDash(digits)
const percent = orDash(share)
/** `850 µs`, `1.2 ms`, `340 ms`, `2.5 s` */
const duration = orDash((seconds) => {
  if (seconds >= 1) {
    return `${digits(seconds)} s`
  }
  if (seconds >= 0.001 || seconds === 0) {
    return `${digits(seconds * 1e3)} ms`
  }
  return `${digits(seconds * 1e6)} µs`
})

/** `12 s`, `4 min`, `3 h 5 min`, `12 d 4 h`: an age. */
function age(/** @type {number} */ seconds) {
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  const days = Math.floor(hours / 24)
  if (minutes < 1) {
    return `${Math.floor(seconds)} s`
  }
  if (hours < 1) {
    return `${minutes} min`
  }
  if (days < 1) {
    return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
  }
  return hours % 24 === 0 || days > 99 ? `${days} d` : `${days} d ${hours % 24} h`
}

/** @type {(from: string, to: string) => number} */
const secondsBetween = (from, to) => Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000)
/** `20:57:35 UTC`: the clock of the log, not that of the reader. */
const clock = (/** @type {string} */ at) => `${at.slice(11, 19)} UTC`
/** @type {(value: number, unit: string) => string} */
const plural = (value, unit) => `${count(value)} ${unit}${value === 1 ? '' : 's'}`
const inRecent = (/** @type {StatusDocument} */ { window }) => `in ${Math.round(window.nowSeconds)} s`
const inWindow = (/** @type {StatusDocument} */ { window }) =>
  window.seconds >= 590 ? 'in 10 min' : `in ${age(Math.round(window.seconds))}`

/** Words with a mark that differs in shape, not only in color. */
const mark = (/** @type {keyof typeof SHAPES} */ kind, /** @type {string} */ words) =>
  h('span', { class: `mark ${kind}` }, h('i', { 'aria-hidden': 'true' }, SHAPES[kind]), words)
const SHAPES = { good: '✓', warn: '!', bad: '✕', idle: '–' }

/**
 * A table whose rows begin with their header.
 * Roles are explicit: a phone shows some tables as blocks, which lose them.
 * @type {(caption: Child[], titles: string[], rows: (Child | Child[])[][]) => HTMLElement}
 */
function table(caption, titles, rows) {
  const cell = (/** @type {Child | Child[]} */ content, /** @type {number} */ at) => {
    /** @type {Record<string, string>} */
    const attributes =
      at === 0 ? { scope: 'row', role: 'rowheader' } : { role: 'cell', 'data-title': titles[at] }
    return h(at === 0 ? 'th' : 'td', attributes, ...[content].flat())
  }
  const head = titles.map((title) => h('th', { scope: 'col', role: 'columnheader' }, title))
  return h(
    'table',
    { role: 'table' },
    h('caption', {}, ...caption),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...head)),
    h('tbody', { role: 'rowgroup' }, ...rows.map((row) => h('tr', { role: 'row' }, ...row.map(cell)))),
  )
}

function facts(/** @type {Child[][]} */ ...entries) {
  const rows = entries.map(([name, ...words]) => h('div', {}, h('dt', {}, name), h('dd', {}, ...words)))
  return h('dl', { class: 'facts' }, ...rows)
}

/** @type {(ok: boolean, state: string | undefined) => keyof typeof SHAPES} */
function kindOfCheck(ok, state) {
  if (!ok) {
    return 'bad'
  }
  return state?.startsWith('database down') ? 'warn' : 'good'
}

function showState(/** @type {StatusDocument} */ status) {
  const [worst, ...others] = status.problems
  /** @param {StatusDocument['problems'][number]} problem */
  const kindOf = ({ severity }) => (severity === 'critical' ? 'bad' : 'warn')
  const checks = status.checks.map(({ name, ok, state }) =>
    h('li', {}, mark(kindOfCheck(ok, state), name), quiet(` ${state ?? (ok ? 'ok' : 'failing')}`)),
  )
  const more = others.map((problem) => h('li', {}, mark(kindOf(problem), problem.text)))
  fill(
    'verdict',
    h('p', { class: 'verdict' }, worst ? mark(kindOf(worst), worst.text) : mark('good', 'Ready')),
    h('ul', { class: 'problems', 'aria-label': 'More problems' }, ...more),
    h('ul', { class: 'checks', 'aria-label': 'Checks' }, ...checks),
  )
  document.title = `${SHAPES[worst ? kindOf(worst) : 'good']} ${worst?.text ?? 'Ready'} · ${status.name} · ${NAME}`
  byId('banner').hidden = status.enforcing
  fill(
    'about',
    h('span', { class: 'name' }, status.name),
    h('span', {}, `version ${status.version}`),
    h('span', {}, `Node ${status.node}`),
    h('span', {}, `up ${age(status.uptimeSeconds)}`),
  )
  fill('updated', 'Updated ', time(status.time, clock(status.time)))
}

function showFigures(/** @type {StatusDocument} */ status) {
  const { requests, rejections, latency, cache, process } = status
  const counted = (/** @type {number} */ value) => `${count(value)} ${inWindow(status)}`
  const recent = inRecent(status)
  const window = inWindow(status)
  /** @type {(name: string, when: string, value: string, unit: string, words: string) => HTMLElement} */
  const figure = (name, when, value, unit, words) =>
    h(
      'div',
      {},
      h('dt', {}, `${name} ${when}`),
      h('dd', {}, h('b', {}, value, h('small', {}, unit)), quiet(words)),
    )
  fill(
    'figures',
    figure('Requests', recent, amount(requests.perSecond), ' /s', counted(requests.count)),
    figure('Failing (5xx)', recent, percent(requests.failingRatio), '', counted(requests.failing)),
    figure('Refused', recent, amount(rejections.perSecond), ' /s', counted(rejections.count)),
    figure('Latency p99', recent, duration(latency.p99Seconds), '', `p50 ${duration(latency.p50Seconds)}`),
    figure(
      'Cached',
      window,
      percent(cache.hitRatio),
      '',
      `${count(cache.entries)} of ${count(cache.capacity)} now`,
    ),
    figure('In flight', 'now', count(requests.inFlight), '', plural(requests.connections, 'connection')),
    figure('CPU', recent, percent(process.cpuRatio), '', 'of one core'),
    figure('Memory', 'now', count(process.rssBytes / 1e6), ' MB', 'resident'),
  )
}

function showUpstreams(/** @type {StatusDocument} */ status) {
  /** @type {Record<string, keyof typeof SHAPES>} */
  const kinds = { ok: 'good', degraded: 'warn', failing: 'bad', idle: 'idle' }
  const rows = status.upstreams.map((upstream) => {
    const { prefix, address, state, count: requests, failed, lastFault, firstByte } = upstream
    const { serverErrorRatio, failedNow } = upstream
    const recent = inRecent(status)
    return [
      [code(prefix), note(address)],
      [
        mark(kinds[state], state === 'idle' ? 'no requests' : state),
        serverErrorRatio ? note(`5xx to ${percent(serverErrorRatio)} ${recent}`) : undefined,
        failedNow > 0 ? note(`${count(failedNow)} failed ${recent}`) : undefined,
        lastFault && note(`${lastFault.outcome}, last ${age(lastFault.secondsAgo)} ago`),
      ],
      count(requests),
      [
        count(failed),
        note(percent(requests > 0 ? failed / requests : null)),
        upstream.serverErrors > 0 ? note(`${count(upstream.serverErrors)} own 5xx`) : undefined,
      ],
      [duration(firstByte.p50Seconds), note(`p99 ${duration(firstByte.p99Seconds)}`)],
      [count(upstream.connections), note(`${count(upstream.queued)} queued`)],
    ]
  })
  const titles = ['Upstream', 'State', 'Requests', 'Failed', 'First byte', 'Pool now']
  fill('upstreams', table(['Upstreams ', quiet(inWindow(status))], titles, rows))
}

/** The reasons of the last ten minutes and their counts. */
const occurred = (/** @type {Record<string, number>} */ counts) =>
  Object.entries(counts).filter(([, value]) => value > 0)

function showRejections(/** @type {StatusDocument} */ status) {
  const { byReason, byReasonNow } = status.rejections
  const rows = occurred(byReason).map(([reason, value]) => [
    reason,
    count(byReasonNow[reason] ?? 0),
    count(value),
  ])
  const titles = ['Reason', inRecent(status), inWindow(status)]
  fill('rejections', rows.length > 0 ? table(['Refused tokens by reason'], titles, rows) : '')
}

function showResponses(/** @type {StatusDocument} */ status) {
  const { logins, requests } = status
  const { issued, linksIssued, failedByReason } = logins
  const window = quiet(inWindow(status))
  const responses = occurred(requests.byStatus).map(([code, value]) => [`status ${code}`, count(value)])
  const events = [
    ['tokens issued', count(issued)],
    ...(linksIssued > 0 ? [['links issued', count(linksIssued)]] : []),
    ...occurred(failedByReason).map(([reason, value]) => [`login failed: ${reason}`, count(value)]),
  ]
  fill(
    'responses',
    table(['Responses ', window], ['Status', 'Responses'], responses),
    table(['Logins ', window.cloneNode(true)], ['What', 'Count'], events),
  )
}

/** `1.8 MB`: of 1,000 bytes each, as network graphs have it. */
function bytes(/** @type {number} */ value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3))
  return `${digits(value / 1000 ** power)} ${units[power]}`
}

function showBusiest(/** @type {StatusDocument} */ status) {
  const { requests, bytes: transferred, refusals } = status.busiest
  /**
   * @type {(what: string, list: typeof requests, show: (value: number) => string) => HTMLElement | undefined}
   */
  const ranking = (what, list, show) => {
    const rows = list.map(({ account, count: value }) => [code(account), show(value)])
    return rows.length > 0
      ? table([`${what} by account `, quiet(inWindow(status))], ['Account', what], rows)
      : undefined
  }
  const rankings = [
    ranking('Requests', requests, count),
    ranking('Bytes', transferred, bytes),
    ranking('Refusals', refusals, count),
  ].flatMap((element) => element ?? [])
  fill('busiest', ...(rankings.length > 0 ? rankings : [quiet('No requests of an account yet.')]))
}

function showFeatures(/** @type {StatusDocument} */ { features }) {
  byId('features').hidden = features.length === 0
  fill('features', h('h2', {}, 'Features'), facts(...features.map(({ name, text }) => [name, text])))
}

function showKeys(/** @type {StatusDocument} */ { keys, keySets, certificates, time: now }) {
  const rows = keys.map(({ kid, ageSeconds, tokensLiveSeconds }) => [
    code(kid),
    ageSeconds === null ? mark('idle', 'verifies') : mark('good', 'signs'),
    ageSeconds === null ? '–' : age(ageSeconds),
    tokensLiveSeconds > 0 ? age(tokensLiveSeconds) : 'none left',
  ])
  const sets = keySets.map(({ issuer, ageSeconds }) => [
    `Keys of ${issuer}`,
    ageSeconds === null ? 'not received yet' : `received ${age(ageSeconds)} ago`,
  ])
  const ends = certificates.map(({ certificate, expiresAt }) => [
    `Certificate ${certificate}`,
    expiresAt < now ? 'expired on ' : `expires in ${age(secondsBetween(now, expiresAt))}, on `,
    time(expiresAt, expiresAt.slice(0, 10)),
  ])
  const titles = ['Key', 'Use', 'Age', 'Tokens live at most']
  const none = ['none yet', '', '', '']
  fill('keys', table(['Keys'], titles, rows.length > 0 ? rows : [none]), facts(...sets, ...ends))
}

/** @type {Record<string, string>} */
const SOURCE_NAMES = { file: 'a file', feed: 'the feed' }

/** How old the state of the feed is. */
function feedFact(/** @type {NonNullable<StatusDocument['feed']>} */ { ageSeconds, maxStaleSeconds }) {
  const limit = maxStaleSeconds === null ? '' : `, too old after ${age(maxStaleSeconds)}`
  return ['Feed', ageSeconds === null ? 'not received yet' : `confirmed ${age(ageSeconds)} ago${limit}`]
}

/** @param {StatusDocument['reloads'][number]} reload */
function newestVersion({ failing, suspect }) {
  if (suspect) {
    return mark('bad', 'suspect')
  }
  return failing ? mark('bad', 'unusable') : mark('good', 'ok')
}

function showTrust(/** @type {StatusDocument} */ status) {
  const { credentials, activeCredentials, feed, revocations, reloads, time: now } = status
  const rows = reloads.map((reload) => [
    reload.subject,
    newestVersion(reload),
    time(reload.lastGoodAt, `${age(secondsBetween(reload.lastGoodAt, now))} ago`),
  ])
  fill(
    'trust',
    h('h2', {}, 'Credentials and revocations'),
    facts(
      credentials === 'none'
        ? ['Credentials', 'none: this sidecar only verifies']
        : [
            'Credentials',
            bold(count(activeCredentials)),
            ` active, from ${SOURCE_NAMES[credentials] ?? credentials}`,
          ],
      ...(feed === null ? [] : [feedFact(feed)]),
      ['Revocations', bold(count(revocations)), ' active'],
    ),
    table(['Reloads'], ['Subject', 'Newest version', 'Active since'], rows),
  )
}

/** @type {Map<string, { look: string, chart: uPlot }>} The charts by the id of their element. */
const charts = new Map()
const DASHES = [[], [6, 4], [2, 4], [10, 3, 2, 3], [1, 6], [12, 4], [4, 2, 1, 2], [8, 8]]
const COLORS = ['--one', '--two', '--three', '--warn', '--good', '--bad', '--quiet', '--ink']
const color = (/** @type {string} */ name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name)

/**
 * Draws lines; they differ in their dashes, not only in color.
 * @type {(id:
 * string, times: number[], lines: Record<string, (number | null)[]>, show: typeof amount) => void}
 */
function draw(id, times, lines, show) {
  if (times.length === 0) {
    return fill(id, quiet('Collecting: the first rates come 5 s after the start.'))
  }
  const place = byId(id)
  const names = Object.keys(lines)
  const latest = names.map((name) => `${name} ${show(lines[name].at(-1) ?? null)}`)
  place.setAttribute('role', 'img')
  place.setAttribute('aria-label', `Last ten minutes. Now: ${latest.join(', ') || 'nothing'}.`)
  const look = [place.clientWidth, color('--ink'), ...names].join()
  /** @type {uPlot.AlignedData} */
  const data = [times, ...Object.values(lines)]
  const known = charts.get(id)
  if (known?.look === look) {
    known.chart.setData(data)
  } else {
    known?.chart.destroy()
    place.replaceChildren()
    charts.set(id, { look, chart: createChart(place, data, names, show) })
  }
  charts.get(id)?.chart.setLegend({ idx: times.length - 1 })
}

/** The indices of values without a neighbor, which a line does not show. */
const isolated = (/** @type {uPlot} */ { data }, /** @type {number} */ line) =>
  [...data[line]].flatMap((value, at, all) =>
    value !== null && (all[at - 1] ?? all[at + 1] ?? null) === null ? [at] : [],
  )

/** @type {(place: HTMLElement, data: uPlot.AlignedData, names: string[], show: typeof amount) => uPlot} */
function createChart(place, data, names, show) {
  const axis = {
    stroke: color('--quiet'),
    grid: { stroke: color('--rule'), width: 1 },
    ticks: { show: false },
    font: '12px system-ui, sans-serif',
  }
  const utc = (/** @type {number} */ seconds) => new Date(seconds * 1000).toISOString()
  return new uPlot(
    {
      width: place.clientWidth,
      height: 150,
      padding: [10, 30, 0, 0],
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { range: (_, first, last) => [Math.min(first, last - 60), last] },
        y: { range: (_, _lowest, highest) => [0, highest > 0 ? highest * 1.1 : 1] },
      },
      axes: [
        {
          ...axis,
          size: 24,
          gap: 4,
          space: 70,
          values: (_, splits) => splits.map((at) => utc(at).slice(11, 19)),
        },
        { ...axis, size: 58, space: 36, values: (_, splits) => splits.map(show) },
      ],
      series: [
        { label: 'UTC', value: (_, at) => (at === null ? '–' : utc(at).slice(11, 19)) },
        ...names.map((name, at) => ({
          label: name,
          stroke: color(name.includes('5xx') ? '--bad' : COLORS[at % COLORS.length]),
          dash: DASHES[at % DASHES.length],
          fill: at === 0 ? `${color('--one')}18` : undefined,
          width: 1.75,
          points: { show: false, filter: isolated },
          value: (/** @type {uPlot} */ _, /** @type {number | null} */ value) => show(value),
        })),
      ],
      hooks: {
        // Without a pointer the legend shows the newest values.
        setCursor: [(u) => u.cursor.idx === null && u.setLegend({ idx: u.data[0].length - 1 })],
      },
    },
    data,
    place,
  )
}

function showCharts(/** @type {StatusDocument} */ { series, rejections }) {
  const { times, requestsPerSecond, failingPerSecond, p99Seconds, p50Seconds, rejectionsPerSecond } = series
  const refused = occurred(rejections.byReason).map(([reason]) => [reason, rejectionsPerSecond[reason]])
  draw('requests', times, { all: requestsPerSecond, 'failing (5xx)': failingPerSecond }, amount)
  draw('latency', times, { p99: p99Seconds, p50: p50Seconds }, duration)
  draw('refused', times, Object.fromEntries(refused), amount)
}

let lostAt
/** @type {StatusDocument | undefined} */
let current

function show(/** @type {StatusDocument} */ status) {
  showState(status)
  showFigures(status)
  showUpstreams(status)
  showRejections(status)
  showResponses(status)
  showBusiest(status)
  showFeatures(status)
  showKeys(status)
  showTrust(status)
  showCharts(status)
}

function showUnreachable() {
  lostAt ??= Date.now()
  const since = `${clock(new Date(lostAt).toISOString())} (${age((Date.now() - lostAt) / 1000)})`
  fill('trouble', h('p', {}, bold('✕ Unreachable'), ` since ${since}. What you see is older.`))
  document.title = `✕ Unreachable · ${NAME}`
  document.body.classList.add('stale')
}

/** @returns {Promise<StatusDocument>} */
async function load() {
  const response = await fetch('status.json', { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) })
  if (!response.ok) {
    throw new Error(`status ${response.status}`)
  }
  return response.json()
}

async function refresh() {
  const status = await load().catch(() => undefined)
  setTimeout(refresh, REFRESH_MS)
  if (status === undefined) {
    return showUnreachable()
  }
  // Another version has another page.
  if (current !== undefined && current.version !== status.version) {
    return location.reload()
  }
  current = status
  lostAt = undefined
  fill('trouble')
  document.body.classList.remove('stale')
  show(status)
}

const redraw = () => current && showCharts(current)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw)
addEventListener('resize', redraw)
refresh()
