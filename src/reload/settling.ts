/**
 * Decides when changed files are loaded, and which loads count.
 * While files are being written, each poll finds another version; and a version that stands
 * still may lack a file, such as the key that follows its certificate.
 */

/** A growing file differs at each poll. A load after one poll could activate a part of a revocation list. */
const STABLE_POLLS = 2
/** Earlier, files may be incomplete: a key may follow its certificate. */
const SETTLED_POLLS = 5
/** Files that change all the time would otherwise never be loaded. */
const UNSETTLED_POLLS = 50

/** What the polls have found. */
export interface PollHistory {
  readonly version: string
  /** How many polls in a row found the version. */
  readonly polls: number
  /** How many polls in a row, since the last load that counted, found versions that had not settled. */
  readonly unsettledPolls: number
}

export function countPoll(before: PollHistory, version: string): PollHistory {
  const polls = version === before.version ? before.polls + 1 : 1
  const unsettledPolls = polls < SETTLED_POLLS ? before.unsettledPolls + 1 : 0
  return { version, polls, unsettledPolls }
}

/**
 * When a version is loaded, and which result counts. One that does not count is dropped: later polls decide.
 *   early        as soon as it is stable. A failure does not count: a file may be missing
 *   whenSettled  a failure counts. A success does not if the files have changed meanwhile, as with `early`
 *   atOnce       each result counts: an operator asked, or the files never settle
 */
export type LoadPolicy = 'early' | 'whenSettled' | 'atOnce'

export function choosePolicy(history: PollHistory, isForced: boolean): LoadPolicy | 'wait' {
  const { polls, unsettledPolls } = history
  if (isForced || unsettledPolls >= UNSETTLED_POLLS) {
    return 'atOnce'
  }
  if (polls >= SETTLED_POLLS) {
    return 'whenSettled'
  }
  return polls === STABLE_POLLS ? 'early' : 'wait'
}

export async function loadCounts(
  policy: LoadPolicy,
  isGood: boolean,
  isUnchanged: () => Promise<boolean>,
): Promise<boolean> {
  switch (policy) {
    case 'early':
      return isGood && (await isUnchanged())
    case 'whenSettled':
      return !isGood || (await isUnchanged())
    case 'atOnce':
      return true
  }
}
