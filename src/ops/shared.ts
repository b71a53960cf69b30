/**
 * One answer for all who ask at the same time.
 *
 * In: something costly that says how things are. Out: the same, made at most once in a turn of the event loop, and never
 * twice at a time. It is never older than the making of one takes.
 *
 * @module
 */

/** Lets those who ask while an answer is made, or in the same turn of the event loop, have that one. */
export function shared<Value>(make: () => Promise<Value>): () => Promise<Value> {
  let answer: Promise<Value> | undefined
  const forget = () => {
    answer = undefined
  }
  return () => {
    if (answer === undefined) {
      answer = make()
      const later = () => setImmediate(forget)
      answer.then(later, later)
    }
    return answer
  }
}
