/** A clock that throws while it is broken, as an internal error. */
export class BreakableClock {
  isBroken = false

  readonly now = (): number => {
    if (this.isBroken) {
      throw new Error('the clock is broken')
    }
    return Date.now()
  }
}
