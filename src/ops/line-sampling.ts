/**
 * Bounds the log lines that clients without a token can cause, so that they cannot fill a disk.
 * The first lines of a second are written.
 * One line stands for the others, at the end of the second: `sampled` is their number.
 */

/** `sampled`: the number of requests that the line stands for. Undefined for one request. */
type WriteSampled<Line> = (line: Line, sampled: number | undefined) => void

const MAX_LINES_PER_SECOND = 20

export class LineSampling<Line> {
  readonly #write: WriteSampled<Line>
  #written = 0
  #omitted = 0
  #first: Line | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(write: WriteSampled<Line>) {
    this.#write = write
  }

  /**
   * `create` makes the line. It is not called for each line that is omitted, because a flood must stay cheap.
   */
  add(create: () => Line): void {
    this.#timer ??= setTimeout(() => this.#endSecond(), 1000).unref()
    if (this.#written < MAX_LINES_PER_SECOND) {
      this.#written++
      this.#write(create(), undefined)
      return
    }
    this.#omitted++
    this.#first ??= create()
  }

  /** Must be called before the process ends. */
  flush(): void {
    clearTimeout(this.#timer)
    this.#endSecond()
  }

  #endSecond(): void {
    const line = this.#first
    const omitted = this.#omitted
    this.#timer = undefined
    this.#written = 0
    this.#omitted = 0
    this.#first = undefined
    if (line !== undefined) {
      this.#write(line, omitted)
    }
  }
}
