/**
 * Runs the polls of a source one after the other. Calls that come while a poll waits for its
 * turn share that poll: it has not begun, so it finds all changes made until now.
 */

/** `reload`: an operator asks. The source is loaded even if it is unchanged or incomplete. */
export type PollKind = 'refresh' | 'reload'

export class PollQueue {
  readonly #poll: (kind: PollKind) => Promise<boolean>
  readonly #waiting = new Map<PollKind, Promise<boolean>>()
  /** The next poll waits for this one. */
  #newest: Promise<unknown> = Promise.resolve()

  /** `poll` must not reject. */
  constructor(poll: (kind: PollKind) => Promise<boolean>) {
    this.#poll = poll
  }

  /** Resolves with what the poll returns. */
  ask(kind: PollKind): Promise<boolean> {
    return this.#waiting.get(kind) ?? this.#append(kind)
  }

  /** Resolves once the polls that were asked for until now have ended. */
  readonly whenIdle = (): Promise<unknown> => this.#newest

  #append(kind: PollKind): Promise<boolean> {
    const polled = this.#newest.then(() => {
      this.#waiting.delete(kind)
      return this.#poll(kind)
    })
    this.#waiting.set(kind, polled)
    this.#newest = polled
    return polled
  }
}
