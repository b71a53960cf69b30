/** Keeps the revocations that a database has lost, other than by a command, until they are back. */
import type { Revocation, RevocationList } from '../revocation-list.ts'

/** Any more are only counted, and taken to be back once all kept ones are. */
const MAX_KEPT = 10_000

export class LostRevocations {
  #kept: readonly Revocation[] = []
  #others = 0

  /**
   * @param lost - what one change has lost, without revocations whose tokens have ended
   * @param allowed - how many names one change may lose
   */
  add(lost: Iterable<Revocation>, allowed: number): void {
    const byName = new Map<string, Revocation>()
    let others = 0
    for (const revocation of lost) {
      if (byName.size < MAX_KEPT) {
        byName.set(nameOf(revocation), revocation)
      } else {
        others++
      }
    }
    if (byName.size > allowed) {
      this.#kept = [...this.#kept, ...byName.values()].slice(0, MAX_KEPT)
      this.#others += others
    }
  }

  /** Forgets those that are back in `revocations`. Returns how many are not. */
  countIn(revocations: RevocationList): number {
    this.#kept = this.#kept.filter((revocation) => !revocations.covers(revocation))
    if (this.#kept.length === 0) {
      this.#others = 0
    }
    return this.#kept.length + this.#others
  }
}

const nameOf = ({ jti, issuer, accountId, accessKey }: Revocation) =>
  JSON.stringify([jti, issuer, accountId, accessKey])
