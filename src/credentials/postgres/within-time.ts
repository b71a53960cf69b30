/**
 * Waits for something, but not for ever.
 *
 * @module
 */

/**
 * What a promise resolves with, or nothing when that takes longer. What was begun goes on, and its end is nobody's
 * concern any more.
 */
export async function withinTime<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const tooLate = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined)
  })
  try {
    return await Promise.race([promise, tooLate])
  } finally {
    clearTimeout(timer)
  }
}
