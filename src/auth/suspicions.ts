/**
 * Watches the files of auth data for changes that load well and are probably mistakes, and
 * makes a fingerprint of each file. That of a directory of keys is made from the names, which are their kids.
 *
 *   suspicion                                              ends
 *   the file was replaced behind its mount (no link)       when the path leads to a file with a link
 *   the credentials became empty                           with a version that has some
 *   revocations were lost: more than one name at once,     with a version that has them again
 *   or by a file that is older than the one before
 *
 * `revocations remove` takes one name from a file that becomes newer: that is no suspicion, and neither is a
 * revocation whose tokens have all ended. A reload that an operator asks for (SIGHUP) accepts what is there.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { Logger } from '../base/log.ts'
import { visibleNames } from '../files/files.ts'

export type SuspectSubject = 'keys' | 'credentials' | 'revocations'

/** A file and what was loaded from it. `watched-states.ts` has one for each subject. */
export interface WatchedState {
  readonly subject: SuspectSubject
  readonly path: string
  /**
   * Compares the current state with the last trusted one. Returns what is suspect, or undefined.
   * @param isOlder - whether the file is older than that of the trusted state
   */
  readonly suspicion: (isOlder: boolean) => string | undefined
  /** The current state is the trusted one from now on. */
  readonly trust: () => void
}

const LINK_CHECK_MS = 10_000
const REPLACED = 'the file was replaced behind its mount: restart, or mount its directory'

export class Suspicions {
  readonly #log: Pick<Logger, 'warn' | 'info' | 'error'>
  readonly #watches: readonly Watch[]
  #timer: NodeJS.Timeout | undefined

  constructor(states: readonly WatchedState[], log: Pick<Logger, 'warn' | 'info' | 'error'>) {
    this.#log = log
    this.#watches = states.map((state) => new Watch(state, log))
  }

  /** Begins to look for replaced files. Changes of files are reported by `onChange`. */
  start(): void {
    for (const watch of this.#watches) {
      this.#run(watch.accept())
    }
    this.#timer = setInterval(() => {
      for (const watch of this.#watches) {
        this.#run(watch.checkLink())
      }
    }, LINK_CHECK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Must be called after each new version of the subject. */
  onChange(subject: SuspectSubject): void {
    for (const watch of this.#watches.filter((each) => each.subject === subject)) {
      this.#run(watch.onChange())
    }
  }

  /** An operator has asked for a reload: what is there is right. */
  accept(): void {
    for (const watch of this.#watches) {
      this.#run(watch.accept())
    }
  }

  /** 1 while the subject is suspect, else 0. */
  suspect(): (readonly [SuspectSubject, number])[] {
    return this.#watches.map(({ subject, isSuspect }) => [subject, Number(isSuspect)])
  }

  /** A number for each subject, equal in replicas that have the same files. */
  fingerprints(): (readonly [SuspectSubject, number | undefined])[] {
    return this.#watches.map(({ subject, fingerprint }) => [subject, fingerprint])
  }

  #run(work: Promise<void>): void {
    work.catch((error: unknown) => this.#log.error({ err: error }, 'error while looking for suspect files'))
  }
}

class Watch {
  fingerprint: number | undefined
  readonly #state: WatchedState
  readonly #log: Pick<Logger, 'warn' | 'info'>
  #trustedTimeMs = 0
  /** By what makes it suspect. */
  readonly #suspicions = { content: undefined, link: undefined } as Record<
    'content' | 'link',
    string | undefined
  >

  constructor(state: WatchedState, log: Pick<Logger, 'warn' | 'info'>) {
    this.#state = state
    this.#log = log
  }

  get subject(): SuspectSubject {
    return this.#state.subject
  }

  get isSuspect(): boolean {
    return Object.values(this.#suspicions).some((suspicion) => suspicion !== undefined)
  }

  async accept(): Promise<void> {
    this.#state.trust()
    this.#trustedTimeMs = await modifiedMs(this.#state.path)
    this.#set('content', undefined)
    this.fingerprint = await fingerprintOf(this.#state.path)
    await this.checkLink()
  }

  async onChange(): Promise<void> {
    const { path } = this.#state
    const timeMs = await modifiedMs(path)
    const suspicion = this.#state.suspicion(timeMs < this.#trustedTimeMs)
    this.#set('content', suspicion)
    if (suspicion === undefined) {
      this.#state.trust()
      this.#trustedTimeMs = timeMs
    }
    this.fingerprint = await fingerprintOf(path)
  }

  async checkLink(): Promise<void> {
    const links = await stat(this.#state.path).then(
      ({ nlink }) => nlink,
      () => 1, // a file that is missing is a problem of its own
    )
    this.#set('link', links === 0 ? REPLACED : undefined)
  }

  #set(kind: 'content' | 'link', suspicion: string | undefined): void {
    const { subject, path } = this.#state
    if (suspicion !== undefined && suspicion !== this.#suspicions[kind]) {
      this.#log.warn({ subject, path, suspicion }, 'new version is suspect')
    }
    if (suspicion === undefined && this.#suspicions[kind] !== undefined) {
      this.#log.info({ subject, path }, 'no longer suspect')
    }
    this.#suspicions[kind] = suspicion
  }
}

const modifiedMs = (path: string): Promise<number> =>
  stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0,
  )

/** Reads in parts, so that requests do not wait for a large file. Undefined if a file cannot be read. */
async function fingerprintOf(path: string): Promise<number | undefined> {
  const hash = createHash('sha256')
  try {
    const isDirectory = (await stat(path)).isDirectory()
    const content = isDirectory ? [(await visibleNames(path)).join('\n')] : createReadStream(path)
    for await (const part of content) {
      hash.update(part)
    }
  } catch {
    return undefined
  }
  return hash.digest().readUIntBE(0, 6) // a number of Prometheus holds 53 bits
}
