/**
 * Fills the status page from status.json, every five seconds.
 * When the sidecar does not respond, the page says so and keeps what it showed.
 */

const REFRESH_MS = 5000
const TIMEOUT_MS = 4000
const NAME = 'Storage auth sidecar'

/** Creates an element. Text is set as text, never read as HTML. */
function h(name, attributes, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  element.append(...children.filter((child) => child !== undefined && child !== null))
  return element
}

const byId = (id) => document.getElementById(id)
const fill = (id, ...children) => byId(id).replaceChildren(...children)
const quiet = (...children) => h('span', { class: 'quiet' }, ...children)
const note = (...children) => h('div', { class: 'quiet' }, ...children)
const code = (text) => h('code', {}, text)
const bold = (text) => h('b', {}, text)
const time = (at, text) => h('time', { datetime: at }, text)

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
const orDash = (show) => (value) => (value === null ? '–' : show(value))
const amount = orDash(digits)
const percent = orDash(share)
/** `850 µs`, `1.2 ms`, `340 ms`, `2.5 s` */
const duration = orDash((seconds) => {
  const [factor, unit] =
    seconds >= 1 ? [1, 's'] : seconds >= 0.001 || seconds === 0 ? [1e3, 'ms'] : [1e6, 'µs']
  return `${digits(seconds * factor)} ${unit}`
})

/** `12 s`, `4 min`, `3 h 5 min`, `12 d 4 h`: an age. */
function age(seconds) {
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  const days = Math.floor(hours / 24)
  if (minutes < 1) return `${Math.floor(seconds)} s`
  if (hours < 1) return `${minutes} min`
  if (days < 1) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
  return hours % 24 === 0 || days > 99 ? `${days} d` : `${days} d ${hours % 24} h`
}

const secondsBetween = (from, to) => Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000)
/** `20:57:35 UTC`: the clock of the log, not that of the reader. */
const clock = (at) => `${at.slice(11, 19)} UTC`
const plural = (value, unit) => `${count(value)} ${unit}${value === 1 ? '' : 's'}`
const inRecent = ({ window }) => `in ${Math.round(window.nowSeconds)} s`
const inWindow = ({ window }) =>
  window.seconds >= 590 ? 'in 10 min' : `in ${age(Math.round(window.seconds))}`

/** Words with a mark that differs in shape, not only in color. */
const mark = (kind, words) =>
  h('span', { class: `mark ${kind}` }, h('i', { 'aria-hidden': 'true' }, SHAPES[kind]), words)
const SHAPES = { good: '✓', warn: '!', bad: '✕', idle: '–' }

/** A table whose rows begin with their header. Roles are explicit: a phone shows some tables as blocks, which lose them. */
function table(caption, titles, rows) {
  const cell = (content, at) => {
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

function facts(...entries) {
  const rows = entries.map(([name, ...words]) => h('div', {}, h('dt', {}, name), h('dd', {}, ...words)))
  return h('dl', { class: 'facts' }, ...rows)
}

function showState(status) {
  const [worst, ...others] = status.problems
  const kindOf = ({ severity }) => (severity === 'critical' ? 'bad' : 'warn')
  const checks = status.checks.map(({ name, ok, state }) =>
    h('li', {}, mark(ok ? 'good' : 'bad', name), quiet(` ${state ?? (ok ? 'ok' : 'failing')}`)),
  )
  const more = others.map((problem) => h('li', {}, mark(kindOf(problem), problem.text)))
  fill(
    'verdict',
    h('p', { class: 'verdict' }, worst ? mark(kindOf(worst), worst.text) : mark('good', 'Ready')),
    h('ul', { class: 'problems', 'aria-label': 'More problems' }, ...more),
    h('ul', { class: 'checks', 'aria-label': 'Checks' }, ...checks),
  )
  document.title = `${SHAPES[worst ? kindOf(worst) : 'good']} ${worst?.text ?? 'Ready'} · ${NAME}`
  byId('banner').hidden = status.enforcing
  fill(
    'about',
    h('span', {}, status.version),
    h('span', {}, `Node ${status.node}`),
    h('span', {}, `up ${age(status.uptimeSeconds)}`),
  )
  fill('updated', 'Updated ', time(status.time, clock(status.time)))
}

function showFigures(status) {
  const { requests, rejections, latency, cache, process } = status
  const counted = (value) => `${count(value)} ${inWindow(status)}`
  const [recent, window] = [inRecent(status), inWindow(status)]
  const figure = (name, when, value, unit, words) =>
    h(
      'div',
      {},
      h('dt', {}, `${name} ${when}`),
      h('dd', {}, h('b', {}, value, h('small', {}, unit)), quiet(words)),
    )
  fill(
    'figures',
    figure('Requests', recent, amount(requests.perSecond), '/s', counted(requests.count)),
    figure('Failing (5xx)', recent, percent(requests.failingRatio), '', counted(requests.failing)),
    figure('Refused', recent, amount(rejections.perSecond), '/s', counted(rejections.count)),
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

function showUpstreams(status) {
  const kinds = { ok: 'good', degraded: 'warn', failing: 'bad', idle: 'idle' }
  const rows = status.upstreams.map((upstream) => {
    const { prefix, address, state, count: requests, failed, lastFault, firstByte } = upstream
    return [
      [code(prefix), note(address)],
      [
        mark(kinds[state], state === 'idle' ? 'no requests' : state),
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
const occurred = (counts) => Object.entries(counts).filter(([, value]) => value > 0)

function showRejections(status) {
  const rows = occurred(status.rejections.byReason).map(([reason, value]) => [reason, count(value)])
  fill(
    'rejections',
    rows.length > 0 ? table(['Refused ', quiet(inWindow(status))], ['Reason', 'Count'], rows) : '',
  )
}

function showResponses(status) {
  const { logins, requests } = status
  const list = (counts) =>
    occurred(counts)
      .map(([name, value]) => `${name} ${count(value)}`)
      .join(' · ') || 'none'
  const { issued, linksIssued, failedByReason } = logins
  const issuedLinks = linksIssued > 0 ? ` · ${plural(linksIssued, 'link')}` : ''
  const when = () => quiet(` ${inWindow(status)}`)
  fill(
    'responses',
    facts(
      ['Responses', list(requests.byStatus), when()],
      ['Issued', `${plural(issued, 'token')}${issuedLinks}`, when()],
      ['Failed logins', list(failedByReason), when()],
    ),
  )
}

function showKeys({ keys, keySets, certificates, time: now }) {
  const rows = keys.map(({ kid, ageSeconds, tokensLiveSeconds }) => [
    code(kid),
    ageSeconds === null ? mark('idle', 'verifies') : mark('good', 'signs'),
    ageSeconds === null ? '–' : age(ageSeconds),
    tokensLiveSeconds > 0 ? age(tokensLiveSeconds) : 'none left',
  ])
  const sets = keySets.map(({ issuer, ageSeconds }) => [
    `keys of ${issuer}`,
    ageSeconds === null ? 'not received yet' : `received ${age(ageSeconds)} ago`,
  ])
  const ends = certificates.map(({ certificate, expiresAt }) => [
    certificate,
    expiresAt < now ? 'expired ' : `expires in ${age(secondsBetween(now, expiresAt))} `,
    time(expiresAt, expiresAt.slice(0, 10)),
  ])
  const titles = ['Key', 'Use', 'Age', 'Tokens live at most']
  fill('keys', table(['Keys'], titles, rows), facts(...sets, ...ends))
}

function showTrust({ credentials, revocations, reloads, time: now }) {
  const rows = reloads.map(({ subject, failing, lastGoodAt }) => [
    subject,
    failing ? mark('bad', 'unusable') : mark('good', 'ok'),
    time(lastGoodAt, `${age(secondsBetween(lastGoodAt, now))} ago`),
  ])
  fill(
    'trust',
    facts(['Credentials', bold(credentials)], ['Revocations', bold(count(revocations)), ' active']),
    table(['Reloads'], ['Subject', 'Newest version', 'Active since'], rows),
  )
}

/** The charts by the id of their element. */
const charts = new Map()
const DASHES = [[], [6, 4], [2, 4], [10, 3, 2, 3], [1, 6], [12, 4], [4, 2, 1, 2], [8, 8]]
const COLORS = ['--one', '--two', '--three', '--warn', '--good', '--bad', '--quiet', '--ink']
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name)

/** Draws lines; they differ in their dashes, not only in color. */
function draw(id, times, lines, show) {
  if (times.length === 0) return fill(id, quiet('Collecting: the first rates come 5 s after the start.'))
  const place = byId(id)
  const names = Object.keys(lines)
  const latest = names.map((name) => `${name} ${show(lines[name].at(-1) ?? null)}`)
  place.setAttribute('role', 'img')
  place.setAttribute('aria-label', `Last ten minutes. Now: ${latest.join(', ') || 'nothing'}.`)
  const look = [place.clientWidth, color('--ink'), ...names].join()
  const data = [times, ...Object.values(lines)]
  const known = charts.get(id)
  if (known?.look === look) known.chart.setData(data)
  else {
    known?.chart.destroy()
    place.replaceChildren()
    charts.set(id, { look, chart: createChart(place, data, names, show) })
  }
  charts.get(id).chart.setLegend({ idx: times.length - 1 })
}

/** The indices of values without a neighbor, which a line does not show. */
const isolated = ({ data }, line) =>
  data[line].flatMap((value, at, all) =>
    value !== null && (all[at - 1] ?? all[at + 1] ?? null) === null ? [at] : [],
  )

function createChart(place, data, names, show) {
  const axis = {
    stroke: color('--quiet'),
    grid: { stroke: color('--rule'), width: 1 },
    ticks: { show: false },
    font: '12px system-ui, sans-serif',
  }
  const utc = (seconds) => new Date(seconds * 1000).toISOString()
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
          value: (_, value) => show(value),
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

function showCharts({ series, rejections }) {
  const { times, requestsPerSecond, failingPerSecond, p99Seconds, p50Seconds, rejectionsPerSecond } = series
  const refused = occurred(rejections.byReason).map(([reason]) => [reason, rejectionsPerSecond[reason]])
  draw('requests', times, { all: requestsPerSecond, 'failing (5xx)': failingPerSecond }, amount)
  draw('latency', times, { p99: p99Seconds, p50: p50Seconds }, duration)
  draw('refused', times, Object.fromEntries(refused), amount)
}

let lostAt
let current

function show(status) {
  showState(status)
  showFigures(status)
  showUpstreams(status)
  showRejections(status)
  showResponses(status)
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

async function load() {
  const response = await fetch('status.json', { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) })
  if (!response.ok) throw new Error(`status ${response.status}`)
  return response.json()
}

async function refresh() {
  const status = await load().catch(() => undefined)
  setTimeout(refresh, REFRESH_MS)
  if (status === undefined) return showUnreachable()
  // Another version has another page.
  if (current !== undefined && current.version !== status.version) return location.reload()
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
