/**
 * The tables of `docs/scaling.md`: fleets of different size, and what moves their hit ratio.
 *
 * @module
 */
import { type PodOptions, type PodOutcome, simulatePod } from './pod.ts'

/** Fleets: each has tokens in use in proportion to what it serves. */
const FLEETS = [
  { pods: 1, tokens: 1000 },
  { pods: 100, tokens: 50_000 },
  { pods: 10_000, tokens: 2_000_000 },
] as const

/** What every table takes for granted unless it says otherwise. */
export const ASSUMED = {
  exponent: 1,
  requestsPerSecond: 100,
  cacheTokens: 10_000,
  maxAgeSeconds: 300,
  seed: 1,
} as const satisfies Omit<PodOptions, 'tokens'>

/** CPU microseconds that an ES256 token costs more when it is not remembered; docs/performance.md has this machine's. */
export const VERIFY_MICROS = 100
/** Memory of a remembered token: the goal of 10 MB for 10,000. */
export const KILOBYTES_PER_TOKEN = 1
const IDLE_MEGABYTES = 80
const POOL_SIZE = 5
const LIFETIME_SECONDS = 86_400
const POLLS_PER_SECOND = 2.5
const LOGIN_FAILURES = 20

/** What has been simulated: several tables show the same pod. */
const done = new Map<string, Promise<PodOutcome>>()

function simulate(options: Partial<PodOptions> & Pick<PodOptions, 'tokens'>): Promise<PodOutcome> {
  const key = JSON.stringify({ ...ASSUMED, ...options })
  const outcome = done.get(key) ?? simulatePod({ ...ASSUMED, ...options })
  done.set(key, outcome)
  return outcome
}

const whole = (value: number) => Math.round(value).toLocaleString('en-US')
const percent = (share: number) => `${(share * 100).toFixed(1)} %`
const cpu = (verifiedPerSecond: number) => percent((verifiedPerSecond * VERIFY_MICROS) / 1e6)

/** Every table, in Markdown, under its heading. */
export async function scalingTables(): Promise<string> {
  return [
    '### Fleets',
    await fleets(),
    '### What is shared',
    shared(),
    '### Cache size and age (10,000 pods)',
    await sizes(),
    '### Changes of credentials (100 pods)',
    await changes(),
    '### After a start or a change',
    await emptied(),
  ].join('\n\n')
}

async function fleets(): Promise<string> {
  const rows: string[][] = []
  for (const { pods, tokens } of FLEETS) {
    for (const [balancing, own] of [
      ['any pod', tokens],
      ['same token, same pod', tokens / pods],
    ] as const) {
      if (pods === 1 && balancing !== 'any pod') continue
      const { hitRatio, verifiedPerSecond, remembered } = await simulate({ tokens: own })
      rows.push([
        whole(pods),
        whole(tokens),
        whole(pods * ASSUMED.requestsPerSecond),
        balancing,
        percent(hitRatio),
        cpu(verifiedPerSecond),
        ((pods * verifiedPerSecond * VERIFY_MICROS) / 1e6).toFixed(2),
        whole(remembered),
        whole(IDLE_MEGABYTES + (remembered * KILOBYTES_PER_TOKEN) / 1000),
      ])
    }
  }
  const titles = ['pods', 'tokens in use', 'requests/s', 'balanced to', 'hit ratio', 'verify CPU per pod']
  return table([...titles, 'cores for verifying, all pods', 'tokens remembered per pod', 'MB per pod'], rows)
}

function shared(): string {
  const rows = FLEETS.map(({ pods, tokens }) => [
    whole(pods),
    whole(pods),
    whole(2 * pods),
    whole(pods * POOL_SIZE),
    whole(pods * POLLS_PER_SECOND),
    (pods / 60).toFixed(2),
    whole(pods / 5),
    (tokens / LIFETIME_SECONDS).toFixed(2),
    whole(pods * LOGIN_FAILURES),
  ])
  return table(
    [
      'pods',
      'PostgreSQL connections that listen',
      'usual connections',
      'most connections',
      'questions for changes/s',
      'JWKS fetches/s',
      'JWKS fetches/s, made-up kids',
      'logins/s',
      'guesses a minute per account and address',
    ],
    rows,
  )
}

async function sizes(): Promise<string> {
  const tokens = 2_000_000
  const rows: string[][] = []
  for (const cacheTokens of [1000, 10_000, 100_000]) {
    const cells = [whole(cacheTokens)]
    for (const maxAgeSeconds of [60, 300, 600]) {
      cells.push(percent((await simulate({ tokens, cacheTokens, maxAgeSeconds })).hitRatio))
    }
    rows.push(cells)
  }
  return table(['`cache.maxTokens`', '60 s', '300 s (default)', '600 s'], rows)
}

async function changes(): Promise<string> {
  const rows: string[][] = []
  for (const perHour of [0, 60, 360, 3600]) {
    const every = perHour === 0 ? {} : { changeEverySeconds: 3600 / perHour }
    const { hitRatio, verifiedPerSecond } = await simulate({ tokens: 50_000, ...every })
    rows.push([whole(perHour), percent(hitRatio), cpu(verifiedPerSecond)])
  }
  return table(['changes an hour', 'hit ratio', 'verify CPU per pod'], rows)
}

async function emptied(): Promise<string> {
  const rows: string[][] = []
  for (const { pods, tokens } of FLEETS) {
    const { hitRatio, afterEmptying } = await simulate({ tokens })
    const [first = 0] = afterEmptying
    const mean = (from: number, to: number) => {
      const seconds = afterEmptying.slice(from - 1, to)
      return percent(seconds.reduce((sum, share) => sum + share, 0) / seconds.length)
    }
    const firstCpu = cpu(ASSUMED.requestsPerSecond * (1 - first))
    rows.push([whole(pods), percent(hitRatio), mean(1, 1), mean(2, 10), mean(11, 60), firstCpu])
  }
  return table(
    [
      'pods',
      'hit ratio before',
      '1st second',
      '2nd to 10th',
      '11th to 60th',
      'verify CPU per pod, 1st second',
    ],
    rows,
  )
}

function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(titles), line(titles.map((_, at) => (at === 0 ? '---' : '---:'))), ...rows.map(line)].join(
    '\n',
  )
}
