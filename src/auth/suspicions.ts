/**
 * Reports changes of the auth data that are valid and probably mistakes, and the fingerprints of the data.
 *
 *   suspicion                                              ends
 *   the file was replaced behind its mount (no link)       when the path leads to a file with a link
 *   the credentials became empty                           with a version that has some
 *   revocations were lost: of more than one name at once,  with a version that has them again
 *   by a file that is older than the one before,
 *   or by a whole state of the feed
 *   an earlier state of the database is back               when the state before it returns
 *
 * `revocations remove` takes one name: that is no suspicion, and neither is a revocation whose tokens have
 * all ended. A reload that an operator asks for (SIGHUP) accepts what is there.
 */
import { stat } from 'node:fs/promises'
import { addFingerprint } from '../base/fingerprint.ts'
import type { Logger } from '../base/log.ts'

export type SuspectSubject = 'keys' | 'credentials' | 'revocations'

/** A subject of one source. `watched-states.ts` makes them. A subject may have several sources. */
export interface WatchedState {
  readonly subject: SuspectSubject
  /** Fields of log lines that name the source. */
  readonly origin: () => Readonly<Record<string, string>>
  /** The file or directory of a source that has one: its link and its time are watched. */
  readonly file?: string
  /** Of the active content, equal for equal content. Undefined until the source is loaded. */
  readonly fingerprint: () => number | undefined
  /**
   * Compares the active content with the last trusted one. Returns what is suspect, or undefined.
   * @param isOlder - whether the file is older than that of the trusted content
   */
  readonly suspicion: (isOlder: boolean) => string | undefined | Promise<string | undefined>
  /** The active content is the trusted one from now on. */
  readonly trust: () => void
  /** Calls `onChange` after each new version. */
  subscribe(onChange: () => void): void
}

type Log = Pick<Logger, 'warn' | 'info' | 'error'>

const LINK_CHECK_MS = 10_000
const REPLACED = 'the file was replaced behind its mount: restart, or mount its directory'

export class Suspicions {
  readonly #log: Log
  readonly #watches: readonly Watch[]
  #timer: NodeJS.Timeout | undefined

  constructor(states: readonly WatchedState[], log: Log) {
    this.#log = log
    this.#watches = states.map((state) => new Watch(state, log))
    for (const [index, watch] of this.#watches.entries()) {
      states[index]?.subscribe(() => this.#run(watch.onChange()))
    }
  }

  /** Begins to look for replaced files. */
  start(): void {
    this.accept()
    this.#timer = setInterval(() => {
      for (const watch of this.#watches) {
        this.#run(watch.checkLink())
      }
    }, LINK_CHECK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Trusts the active content: it is the first, or an operator has asked for a reload. */
  accept(): void {
    for (const watch of this.#watches) {
      this.#run(watch.accept())
    }
  }

  /** 1 while the subject is suspect, else 0. */
  suspect(): (readonly [SuspectSubject, number])[] {
    const subjects = new Map<SuspectSubject, number>()
    for (const { subject, isSuspect } of this.#watches) {
      subjects.set(subject, Math.max(subjects.get(subject) ?? 0, Number(isSuspect)))
    }
    return [...subjects]
  }

  /** A number for each subject, equal in replicas with the same content. Undefined until it is loaded. */
  fingerprints(): (readonly [SuspectSubject, number | undefined])[] {
    const subjects = new Map<SuspectSubject, number | undefined>()
    for (const { subject, fingerprint } of this.#watches) {
      const sum = subjects.has(subject) ? subjects.get(subject) : 0
      const areLoaded = sum !== undefined && fingerprint !== undefined
      subjects.set(subject, areLoaded ? addFingerprint(sum, fingerprint) : undefined)
    }
    return [...subjects]
  }

  #run(work: Promise<void>): void {
    work.catch((error: unknown) => this.#log.error({ err: error }, 'error while looking for suspect changes'))
  }
}

class Watch {
  readonly #state: WatchedState
  readonly #log: Pick<Logger, 'warn' | 'info'>
  /** How many versions were active or accepted. Only the newest may become the trusted one. */
  #versions = 0
  #trustedTimeMs = 0
  /** What is suspect about the content, and about the link of its file. */
  readonly #suspicions: Record<'content' | 'link', string | undefined> = {
    content: undefined,
    link: undefined,
  }

  constructor(state: WatchedState, log: Pick<Logger, 'warn' | 'info'>) {
    this.#state = state
    this.#log = log
  }

  get subject(): SuspectSubject {
    return this.#state.subject
  }

  get fingerprint(): number | undefined {
    return this.#state.fingerprint()
  }

  get isSuspect(): boolean {
    return Object.values(this.#suspicions).some((suspicion) => suspicion !== undefined)
  }

  async accept(): Promise<void> {
    this.#versions++
    this.#state.trust()
    this.#set('content', undefined)
    this.#trustedTimeMs = await modifiedMs(this.#state.file)
    await this.checkLink()
  }

  async onChange(): Promise<void> {
    this.#versions++
    const version = this.#versions
    const timeMs = await modifiedMs(this.#state.file)
    const suspicion = await this.#state.suspicion(timeMs < this.#trustedTimeMs)
    if (version !== this.#versions) {
      return
    }
    this.#set('content', suspicion)
    if (suspicion === undefined) {
      this.#state.trust()
      this.#trustedTimeMs = timeMs
    }
  }

  async checkLink(): Promise<void> {
    const { file } = this.#state
    if (file === undefined) {
      return
    }
    const links = await stat(file).then(
      ({ nlink }) => nlink,
      () => 1, // a file that is missing is a problem of its own
    )
    this.#set('link', links === 0 ? REPLACED : undefined)
  }

  #set(kind: 'content' | 'link', suspicion: string | undefined): void {
    const { subject, origin } = this.#state
    if (suspicion !== undefined && suspicion !== this.#suspicions[kind]) {
      this.#log.warn({ subject, ...origin(), suspicion }, 'new version is suspect')
    }
    if (suspicion === undefined && this.#suspicions[kind] !== undefined) {
      this.#log.info({ subject, ...origin() }, 'no longer suspect')
    }
    this.#suspicions[kind] = suspicion
  }
}

/** 0 without a file. */
async function modifiedMs(file: string | undefined): Promise<number> {
  if (file === undefined) {
    return 0
  }
  return stat(file).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0,
  )
}
