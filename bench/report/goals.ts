/**
 * The goals, and whether a run reached them.
 *
 * In: the sections of a run. Out: one line for each goal whose figures were measured. Every goal but the last ones is
 * a ratio within the run: absolute times say nothing about another machine.
 *
 * @module
 */
import type { Figure, Section } from './columns.ts'

/** One goal beside what was measured. */
export interface Goal {
  readonly goal: string
  readonly found: number
  /** How `found` reads, with its unit. */
  readonly reads: string
  readonly reached: boolean
}

/** Finds a figure; `NaN` where it was not measured. */
type Find = (section: string, row: string, figure: Figure) => number

interface GoalKind {
  readonly goal: string
  readonly found: (find: Find) => number
  readonly reads: (found: number) => string
  /** Inclusive. */
  readonly atMost?: number
  readonly atLeast?: number
}

const ratio = (name: string, other: string) => (find: Find) =>
  find('hot', name, 'cpuMicros') / find('hot', other, 'cpuMicros')
const times = (what: string) => (found: number) => `${found.toFixed(2)}x ${what}`

const CPU: readonly GoalKind[] = [
  {
    goal: 'hot GET: CPU at most 2.2x nginx',
    found: ratio('sidecar', 'nginx'),
    reads: times('nginx'),
    atMost: 2.2,
  },
  {
    goal: 'hot GET: CPU at most 1.75x nginx',
    found: ratio('sidecar', 'nginx'),
    reads: times('nginx'),
    atMost: 1.75,
  },
  {
    goal: 'hot GET: CPU below HAProxy jwt_verify ES256',
    found: ratio('sidecar', 'haproxy-es256'),
    reads: times('HAProxy'),
    atMost: 1,
  },
  {
    goal: 'hot GET: CPU below 0.5x stock http-proxy',
    found: ratio('sidecar', 'http-proxy'),
    reads: times('http-proxy'),
    atMost: 0.5,
  },
]

/** `forged` and `expired` are different tokens each time, `repeated` one token on kept-alive connections. */
const REFUSED: readonly GoalKind[] = [
  'missing',
  'malformed',
  'unknown key',
  'forged',
  'expired',
  'forged, repeated',
  'expired, repeated',
].map((kind) => ({
  goal: `refused (${kind}): CPU at most 0.5x a forwarded request`,
  found: (find) =>
    find('refused', `sidecar, ${kind}`, 'cpuMicros') / find('refused', 'sidecar, forwarded', 'cpuMicros'),
  reads: times('forwarded'),
  atMost: 0.5,
}))

const OBJECTS: readonly GoalKind[] = ['10 MiB down', '10 MiB up', '1 GiB down', '1 GiB up'].map((kind) => ({
  goal: `${kind}: at least 0.9x nginx's MB/s`,
  found: (find) =>
    find('objects', `${kind}: sidecar`, 'megabytesPerSecond') /
    find('objects', `${kind}: nginx`, 'megabytesPerSecond'),
  reads: times('nginx'),
  atLeast: 0.9,
}))

const REST: readonly GoalKind[] = [
  {
    goal: 'half load: p99 at most 1 ms above nginx',
    found: (find) => find('half-load', 'sidecar', 'p99') - find('half-load', 'nginx', 'p99'),
    reads: (found) => `${found >= 0 ? '+' : ''}${found.toFixed(2)} ms`,
    atMost: 1,
  },
  {
    goal: '10,000 tokens: at most +10 MB',
    found: (find) => find('token-memory', 'difference', 'rssGrowth'),
    reads: (found) => `${found.toFixed(1)} MB`,
    atMost: 10,
  },
  {
    goal: 'ready within 400 ms',
    found: (find) => find('start', 'sidecar', 'readyMs'),
    reads: (found) => `${found.toFixed(0)} ms`,
    atMost: 400,
  },
  {
    goal: 'idle: at most 80 MB resident',
    found: (find) => find('start', 'sidecar', 'rss'),
    reads: (found) => `${found.toFixed(1)} MB`,
    atMost: 80,
  },
  {
    goal: 'at least 3,000 logins a second on one core',
    found: (find) => find('login', 'POST /v2/auth/token', 'perSecond'),
    reads: (found) => `${found.toFixed(0)}/s`,
    atLeast: 3000,
  },
]

/** Looks how a run did. */
export function goalsOf(sections: readonly Section[]): Goal[] {
  const find: Find = (section, row, figure) =>
    sections.find(({ name }) => name === section)?.rows.find(({ name }) => name === row)?.figures[figure] ??
    Number.NaN
  return [...CPU, ...REFUSED, ...OBJECTS, ...REST].flatMap((kind) => {
    const found = kind.found(find)
    if (Number.isNaN(found)) return []
    const reached = found <= (kind.atMost ?? found) && found >= (kind.atLeast ?? found)
    return [{ goal: kind.goal, found, reads: kind.reads(found), reached }]
  })
}
