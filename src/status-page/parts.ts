/**
 * The parts of the status page, each made of what `/status.json` says.
 *
 * In: a status. Out: HTML by the id of the element that it belongs in. Everything that is not written here goes through
 * `escapeText`. Used in the sidecar and in the browser: see `figures.ts`.
 *
 * @module
 */
import type { Status } from '../ops/status/status.ts'
import { ceilingOf, drawChart, drawSpark, spanOf } from './chart.ts'
import {
  escapeText,
  showAge,
  showAmount,
  showClock,
  showCount,
  showLatency,
  showMegabytes,
  showShare,
} from './figures.ts'

/** Every part, by id. */
export function renderParts(status: Status): Record<string, string> {
  return {
    verdict: verdictPart(status),
    about: aboutPart(status),
    updated: updatedPart(status),
    figures: figuresPart(status),
    requests: requestsPart(status),
    latency: latencyPart(status),
    rejections: rejectionsPart(status),
    routes: routesPart(status),
    upstreams: upstreamsPart(status),
    keys: keysPart(status),
    trust: trustPart(status),
  }
}

/** A word with a mark of its own shape and colour. */
export function mark(kind: 'good' | 'warn' | 'bad' | 'idle', words: string): string {
  const shape = { good: '✓', warn: '!', bad: '✕', idle: '–' }[kind]
  return `<span class="mark ${kind}"><i aria-hidden="true">${shape}</i>${escapeText(words)}</span>`
}

/**
 * A table; the first cell of each row is its header. Caption and cells are HTML. Roles are said in so many words because a phone shows
 * some tables as blocks, which would lose them; there each cell brings its title.
 */
export function table(
  caption: string,
  titles: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const head = titles.map((title) => `<th scope="col" role="columnheader">${title}</th>`).join('')
  const body = rows.map(([first = '', ...cells]) => {
    const rest = cells.map((cell, at) => `<td role="cell" data-title="${titles[at + 1]}">${cell}</td>`)
    return `<tr role="row"><th scope="row" role="rowheader">${first}</th>${rest.join('')}</tr>`
  })
  return `<table role="table"><caption>${caption}</caption><thead role="rowgroup"><tr role="row">${head}</tr></thead><tbody role="rowgroup">${body.join('')}</tbody></table>`
}

/** What the counts of a window are of. */
export function windowWords({ window }: Status): string {
  return `in ${window.seconds >= 590 ? '10 min' : showAge(window.seconds)}`
}

/** Ready, or why not. */
export function verdictPart({ ready, checks }: Status): string {
  const broken = checks.filter(({ ok }) => !ok).map(({ name }) => name)
  const verdict = ready ? mark('good', 'Ready') : mark('bad', `Not ready: ${broken.join(', ')}`)
  const each = checks.map(
    ({ name, ok, state }) =>
      `<li>${mark(ok ? 'good' : 'bad', name)}<span class="quiet"> ${escapeText(state ?? (ok ? 'ok' : 'failing'))}</span></li>`,
  )
  return `<p class="verdict">${verdict}</p><ul class="checks" aria-label="Checks">${each.join('')}</ul>`
}

/** Versions and age. */
export function aboutPart({ version, node, uptimeSeconds, startedAt }: Status): string {
  return `<span>${escapeText(version)}</span><span>Node ${escapeText(node)}</span><span>up <time datetime="${escapeText(startedAt)}">${showAge(uptimeSeconds)}</time></span>`
}

/** When all this was so. */
export function updatedPart({ time }: Status): string {
  return `Updated <time datetime="${escapeText(time)}">${escapeText(showClock(time))}</time>`
}

/** The numbers to look at first. */
export function figuresPart(status: Status): string {
  const { requests, rejections, latency, cache, process, window } = status
  const wait = window.collecting ? 'collecting' : ''
  const figure = (name: string, value: string, note: string) =>
    `<div><dt>${name}</dt><dd><b>${value}</b><span class="quiet">${note}</span></dd></div>`
  const lag = showLatency(process.eventLoopLagWorstSeconds)
  return [
    figure(
      'Requests',
      `${showAmount(requests.perSecond)}<small>/s</small>`,
      wait || `${showCount(requests.count)} ${windowWords(status)}`,
    ),
    figure(
      'Errors (5xx)',
      showShare(requests.errorRatio),
      `${showCount(requests.byStatus['5xx'] ?? 0)} ${windowWords(status)}`,
    ),
    figure(
      'Refusals',
      `${showAmount(rejections.perSecond)}<small>/s</small>`,
      wait || `${showCount(rejections.count)} ${windowWords(status)}`,
    ),
    figure(
      'Latency p99',
      showLatency(latency[0]?.p99Seconds ?? null),
      `p50 ${showLatency(latency[0]?.p50Seconds ?? null)}`,
    ),
    figure(
      'Cache hits',
      showShare(cache.hitRatio),
      `${showCount(cache.entries)} of ${showCount(cache.capacity)}`,
    ),
    figure('In flight', showCount(requests.inFlight), `${showCount(requests.connections)} connections`),
    figure('Event loop lag', showLatency(process.eventLoopLagP99Seconds), `worst ${lag}`),
    figure(
      'Memory',
      showMegabytes(process.rssBytes),
      process.logLinesDropped > 0 ? `${showCount(process.logLinesDropped)} log lines lost` : 'resident',
    ),
  ].join('')
}

/** What stands where a chart will be. */
export function collectingWords({ window }: Status): string {
  return `<p class="empty">Collecting: the first rates come ${showAge(window.everySeconds)} after the start.</p>`
}

/** Requests per second. */
export function requestsPart(status: Status): string {
  if (status.window.collecting) return collectingWords(status)
  const { times, requestsPerSecond, errorsPerSecond } = status.series
  return drawChart({
    title: 'Requests per second',
    times,
    span: spanOf(times),
    lines: [
      { name: 'all', look: 'one', values: requestsPerSecond },
      { name: 'errors (5xx)', look: 'ill', values: errorsPerSecond },
    ],
    show: showAmount,
  })
}

/** Percentiles of the latency. */
export function latencyPart(status: Status): string {
  if (status.window.collecting) return collectingWords(status)
  const { times, p50Seconds, p90Seconds, p99Seconds } = status.series
  return drawChart({
    title: 'Latency',
    times,
    span: spanOf(times),
    lines: [
      { name: 'p99', look: 'one', values: p99Seconds },
      { name: 'p90', look: 'two', values: p90Seconds },
      { name: 'p50', look: 'three', values: p50Seconds },
    ],
    show: showLatency,
  })
}

/** Refused tokens by reason: a row for each. */
export function rejectionsPart(status: Status): string {
  const { rejections, series } = status
  const lines = Object.entries(rejections.byReason)
  const highest = Math.max(
    0,
    ...Object.values(series.rejectionsPerSecond).flatMap((values) => values.map(Number)),
  )
  const rows = lines.map(([reason, count]) => {
    const values = series.rejectionsPerSecond[reason] ?? []
    const spark = drawSpark(
      {
        title: `${reason}, per second`,
        times: series.times,
        span: spanOf(series.times),
        lines: [{ name: reason, look: count === 0 ? 'none' : 'ill', values }],
        show: showAmount,
      },
      ceilingOf(highest),
    )
    const quiet = count === 0 ? ' class="quiet"' : ''
    return [
      `<span${quiet}>${escapeText(reason)}</span>`,
      spark,
      `<span${quiet}>${showAmount(values.at(-1) ?? null)}</span>`,
      `<span${quiet}>${showCount(count)}</span>`,
    ]
  })
  const scale = highest > 0 ? `, full height ${showAmount(ceilingOf(highest))}/s` : ''
  return table(
    `Refused tokens by reason <span class="quiet">${windowWords(status)}${scale}</span>`,
    ['Reason', 'Over time', 'Per s', 'Count'],
    rows,
  )
}

/** Percentiles by route, and logins. */
export function routesPart(status: Status): string {
  const { latency, logins, requests } = status
  const routes = latency.map(({ route, count, p50Seconds, p90Seconds, p99Seconds }) => [
    escapeText(route),
    showCount(count),
    showLatency(p50Seconds),
    showLatency(p90Seconds),
    showLatency(p99Seconds),
  ])
  const answers = Object.entries(requests.byStatus)
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `<span class="unit">${escapeText(name)} <b>${showCount(count)}</b></span>`)
  const failures = Object.entries(logins.byReason)
    .filter(([, count]) => count > 0)
    .map(([reason, count]) => `<span class="unit">${escapeText(reason)} ${showCount(count)}</span>`)
  const failed = failures.length > 0 ? `: ${failures.join(', ')}` : ''
  const caption = `Latency by route <span class="quiet">${windowWords(status)}</span>`
  return `${table(caption, ['Route', 'Requests', 'p50', 'p90', 'p99'], routes)}
<dl class="facts"><div><dt>Answers</dt><dd>${answers.length > 0 ? answers.join(' · ') : 'none'}</dd></div>
<div><dt>Logins</dt><dd><span class="unit"><b>${showCount(logins.issued)}</b> tokens issued</span> · <b>${showCount(logins.failed)}</b> failed${failed}</dd></div></dl>`
}

/** Upstreams, with what went wrong. */
export function upstreamsPart(status: Status): string {
  const rows = status.upstreams.map((upstream) => {
    const { state, lastFault, failed, failedRatio, count, outcomes } = upstream
    const kind = { ok: 'good', degraded: 'warn', failing: 'bad', idle: 'idle' } as const
    const left = (outcomes['client_aborted'] ?? 0) + (outcomes['client_idle'] ?? 0)
    const fault =
      lastFault === null
        ? ''
        : `<div class="quiet">${escapeText(lastFault.outcome)} at ${showClock(lastFault.time)}</div>`
    return [
      `<code>${escapeText(upstream.prefix)}</code><div class="quiet">${escapeText(upstream.address)}</div>`,
      `${mark(kind[state], state === 'idle' ? 'no requests' : state)}${fault}`,
      `${showCount(count)}${left > 0 ? `<div class="quiet">${showCount(left)} left by clients</div>` : ''}`,
      `${showCount(failed)}<div class="quiet">${showShare(failedRatio)}</div>`,
      `${showLatency(upstream.firstByte.p50Seconds)}<div class="quiet">p99 ${showLatency(upstream.firstByte.p99Seconds)}</div>`,
      `${showCount(upstream.connections)}<div class="quiet">${showCount(upstream.queued)} queued</div>`,
    ]
  })
  const titles = ['Upstream', 'State', 'Requests', 'Failed', 'First byte', 'Pool']
  return table(`Upstreams <span class="quiet">${windowWords(status)}</span>`, titles, rows)
}

/** Keys: never a part of one. */
export function keysPart({ keys, issuer }: Status): string {
  const rows = keys.map(({ kid, alg, signs, ageSeconds, createdAt, tokensLiveSeconds }) => [
    `<code>${escapeText(kid)}</code>`,
    escapeText(alg),
    signs ? mark('good', 'signs') : mark('idle', 'verifies'),
    `<time datetime="${escapeText(createdAt)}">${showAge(ageSeconds)}</time>`,
    tokensLiveSeconds > 0 ? showAge(tokensLiveSeconds) : 'none left',
  ])
  const from =
    issuer === null
      ? ''
      : `<p class="quiet">From another issuer; ${issuer.ageSeconds === null ? 'no set received yet' : `last set received ${showAge(issuer.ageSeconds)} ago`}.</p>`
  const none = rows.length === 0 ? '<p class="empty">No keys are loaded.</p>' : ''
  return `${table('Keys', ['Key', 'Algorithm', 'Use', 'Age', 'Tokens live for'], rows)}${none}${from}`
}

/** Credentials, revocations, and what became of new versions of all that decides who gets in. */
export function trustPart({ credentials, revocations, reloads, time }: Status): string {
  const rows = reloads.map(({ subject, ok, failed, failing, lastGoodAt }) => [
    escapeText(subject),
    failing ? mark('bad', 'last failed') : mark('good', ok > 0 ? 'last ok' : 'as started'),
    `${showCount(ok)} / ${showCount(failed)}`,
    lastGoodAt === null
      ? '–'
      : `<time datetime="${escapeText(lastGoodAt)}">${showAge(Math.max(0, (Date.parse(time) - Date.parse(lastGoodAt)) / 1000))} ago</time>`,
  ])
  const kind = { file: 'file', postgres: 'PostgreSQL', none: 'none' }[credentials.kind]
  return `<dl class="facts"><div><dt>Credentials</dt><dd><b>${kind}</b> · ${escapeText(credentials.state)}</dd></div>
<div><dt>Revocations</dt><dd><b>${showCount(revocations.inForce)}</b> in force</dd></div></dl>
${table('Reloads', ['Subject', 'Result', 'Ok / failed', 'In force since'], rows)}`
}
