/**
 * How the upstreams did in a window.
 *
 * In: where they are, what the counters grew by, the state of the pools. Out: a line for each.
 *
 * @module
 */
import { type MetricFamily, valueIn } from './metric-families.ts'
import type { StatusUpstream, UpstreamState } from './status.ts'
import { type Growth, percentiles, share, total, type Window, within } from './window.ts'

/** An upstream as the settings name it. */
export interface UpstreamPlace {
  readonly prefix: string
  /** `http://…`, `https://…` or `unix:/path`. */
  readonly url: string
}

/** A window, once it has been looked at from all sides. */
export interface UpstreamActivity {
  readonly window: Window
  readonly steps: readonly Window[]
  readonly families: readonly MetricFamily[]
}

/** Describes each upstream. */
export function describeUpstreams(
  places: readonly UpstreamPlace[],
  { window, steps, families }: UpstreamActivity,
): readonly StatusUpstream[] {
  const outcomes = window.grown('outcomes')
  const firstBytes = window.grown('firstBytes')
  return places.map(({ prefix, url }): StatusUpstream => {
    const grown = within(outcomes, prefix)
    const failed = total(faultsIn(grown))
    const [lately, lastFault] = endOf(failed > 0 ? steps : [], prefix)
    const count = total(grown)
    return {
      prefix,
      address: addressOf(url),
      state: stateOf(count, failed, lately),
      connections: valueIn(families, 'auth_sidecar_upstream_connections', { upstream: prefix }) ?? 0,
      queued: valueIn(families, 'auth_sidecar_upstream_queue', { upstream: prefix }) ?? 0,
      count,
      failed,
      failedRatio: share(failed, count),
      outcomes: Object.fromEntries([...grown].filter(([, value]) => value > 0)),
      lastFault,
      firstByte: percentiles(within(firstBytes, prefix)),
    }
  })
}

/**
 * What the last step with requests brought, and the most frequent fault of the last step with faults. Looks back from
 * the end, and no further than it must.
 */
function endOf(steps: readonly Window[], prefix: string): [lately: Growth, StatusUpstream['lastFault']] {
  let lately: Growth = new Map()
  for (const step of steps.toReversed()) {
    const outcomes = within(step.grown('outcomes'), prefix)
    if (total(lately) === 0) lately = outcomes
    const [outcome] = faultsIn(outcomes).keys()
    if (outcome !== undefined) return [lately, { outcome, time: new Date(step.until).toISOString() }]
  }
  return [lately, null]
}

/** Those outcomes that occurred and are a fault, the most frequent one first. What a client did is none. */
function faultsIn(grown: Growth): Growth {
  return new Map(
    [...grown]
      .filter(([outcome, value]) => value > 0 && outcome !== 'ok' && !outcome.startsWith('client_'))
      .sort(([, a], [, b]) => b - a),
  )
}

function stateOf(count: number, failed: number, lately: Growth): UpstreamState {
  if (count === 0) return 'idle'
  if (failed === 0) return 'ok'
  // When the last step with requests brought nothing but faults, the upstream is taken to be down.
  return total(faultsIn(lately)) === total(lately) ? 'failing' : 'degraded'
}

/** Where it is, without anything that a URL may hold besides. */
function addressOf(url: string): string {
  if (url.startsWith('unix:')) return url
  const { protocol, host } = new URL(url)
  return `${protocol}//${host}`
}
