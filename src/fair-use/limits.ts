/**
 * The limits of accounts: the file of `fairUse.file` as YAML. In: bytes. Out: the limits of each account,
 * or every problem.
 */
import { z } from 'zod'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { integer, must, nameProblem } from '../base/values.ts'
import { readRegularFile } from '../files/files.ts'
import { parseDocument } from '../files/yaml-list.ts'
import type { Rate } from './rate.ts'

/**
 * Requests wait while a file is parsed, about 1 ms for each KiB. This one may have 4,000 accounts with
 * limits of their own.
 */
const MAX_FILE_BYTES = 262_144

const MAX_REQUESTS = 1_000_000
const MAX_BYTES = 1_000_000_000_000
const DAY_SECONDS = 86_400
/** By default, a burst is what comes in this time. */
const BURST_SECONDS = 2
/** The bytes of this time may move at once. It covers the pauses of a busy process. */
const BYTE_BURST_SECONDS = 0.5

const REQUESTS = `must be 0 (no limit) or a number from 1/${DAY_SECONDS} (one a day) to ${MAX_REQUESTS}`
const LIMITS =
  'must be a map of requestsPerSecond, burst, inFlight, uploadBytesPerSecond and downloadBytesPerSecond'

const limits = z.strictObject(
  {
    requestsPerSecond: z
      .number(must(REQUESTS))
      .max(MAX_REQUESTS, must(REQUESTS))
      .refine((rate) => rate === 0 || rate >= 1 / DAY_SECONDS, must(REQUESTS))
      .optional(),
    burst: integer(0, MAX_REQUESTS).optional(),
    inFlight: integer(0, MAX_REQUESTS).optional(),
    uploadBytesPerSecond: integer(0, MAX_BYTES).optional(),
    downloadBytesPerSecond: integer(0, MAX_BYTES).optional(),
  },
  must(LIMITS),
)

/** A map from accounts. `__proto__` is refused, because zod leaves it out of a record silently. */
const accounts = z
  .any()
  .refine((map) => !(map instanceof Object && Object.hasOwn(map, '__proto__')), 'must not contain __proto__')
  .pipe(z.record(z.string(), limits, must('must be a map from accounts to their limits')))
  .superRefine((map, context) => {
    for (const name of Object.keys(map)) {
      const problem = nameProblem(name)
      if (problem !== undefined) {
        context.addIssue({
          code: 'custom',
          path: [name],
          message: `is the limit of an account that ${problem}`,
        })
      }
    }
  })

const schema = z.strictObject(
  { default: limits.optional(), accounts: accounts.optional() },
  must('must be a map of default and accounts'),
)

/** As written: 0 or absent is no limit. */
type WrittenLimits = z.output<typeof limits>

/** The limits of an account in this process. */
export interface AccountLimits {
  readonly requests: Rate | undefined
  readonly inFlight: number
  readonly upload: Rate | undefined
  readonly download: Rate | undefined
  /** The value of `RateLimit-Policy`: the limits of the whole sidecar. */
  readonly policy: string
}

/** How this process applies the file. */
export interface LimitsUse {
  /** The number of processes that share each limit. */
  readonly processes: number
  /** `report` limits nothing, so no transfer is paced. */
  readonly enforcement: 'enforce' | 'report'
}

export class FairUseLimits {
  readonly #default: AccountLimits | undefined
  readonly #ofAccounts: ReadonlyMap<string, AccountLimits | undefined>

  constructor(written: z.output<typeof schema>, how: LimitsUse) {
    const { default: ofAll = {}, accounts = {} } = written
    this.#default = limitsOf(ofAll, how)
    const entries = Object.entries(accounts)
    this.#ofAccounts = new Map(entries.map(([name, own]) => [name, limitsOf({ ...ofAll, ...own }, how)]))
  }

  /** Undefined if nothing limits the account. */
  of(accountId: string): AccountLimits | undefined {
    const own = this.#ofAccounts.get(accountId)
    return own === undefined && !this.#ofAccounts.has(accountId) ? this.#default : own
  }

  /** The accounts that the file names. */
  get accountIds(): readonly string[] {
    return [...this.#ofAccounts.keys()]
  }
}

function limitsOf(written: WrittenLimits, { processes, enforcement }: LimitsUse): AccountLimits | undefined {
  const { requestsPerSecond = 0, inFlight = 0 } = written
  const burst = written.burst || Math.max(1, Math.floor(requestsPerSecond * BURST_SECONDS))
  const requests =
    requestsPerSecond > 0 ? rateOf(requestsPerSecond / processes, burst / processes) : undefined
  const paces = enforcement === 'enforce'
  const upload = paces ? byteRateOf(written.uploadBytesPerSecond, processes) : undefined
  const download = paces ? byteRateOf(written.downloadBytesPerSecond, processes) : undefined
  if (requests === undefined && inFlight === 0 && upload === undefined && download === undefined) {
    return undefined
  }
  return {
    requests,
    inFlight: inFlight > 0 ? Math.max(1, Math.floor(inFlight / processes)) : Number.POSITIVE_INFINITY,
    upload,
    download,
    policy: policyOf(requestsPerSecond, burst, inFlight),
  }
}

const rateOf = (perSecond: number, burst: number): Rate => ({
  msPerUnit: 1000 / perSecond,
  burst: Math.max(1, burst),
})

function byteRateOf(perSecond = 0, processes = 1): Rate | undefined {
  const share = perSecond / processes
  return perSecond > 0 ? rateOf(share, share * BYTE_BURST_SECONDS) : undefined
}

/** The names of the policies in `RateLimit-Policy` and `RateLimit`. */
export const POLICY_NAMES = { requests: '"requests"', in_flight: '"in-flight"' } as const

/** draft-ietf-httpapi-ratelimit-headers-11, section 3. */
function policyOf(requestsPerSecond: number, burst: number, inFlight: number): string {
  const policies: string[] = []
  if (requestsPerSecond > 0) {
    const windowSeconds = Math.max(1, Math.ceil(burst / requestsPerSecond))
    policies.push(`${POLICY_NAMES.requests};q=${burst};w=${windowSeconds}`)
  }
  if (inFlight > 0) {
    policies.push(`${POLICY_NAMES.in_flight};q=${inFlight};qu="concurrent-requests"`)
  }
  return policies.join(', ')
}

/** Problems are lines, `path:line:column: what is wrong`. Never rejects. */
export async function loadLimits(path: string, how: LimitsUse): Promise<Loaded<FairUseLimits>> {
  const read = await readRegularFile(path, MAX_FILE_BYTES)
  if (!read.ok) {
    return read
  }
  const parsed = parseDocument(read.value.bytes, schema)
  if (!parsed.ok) {
    return notLoaded(parsed.problems.map((problem) => `${path}:${problem}`))
  }
  return loaded(new FairUseLimits(parsed.value, how)) // without the warnings, which are about secrets
}
