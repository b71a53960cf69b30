/**
 * What a client of the soak run may see.
 *
 * In: a kind of request and what became of it. Out: a word for the tally, and whether that was outside the contract.
 * While the upstream is mistreated, whoever depends on it may get 503 or 500 from the sidecar, or have its connection cut
 * inside a response, and nothing else; whoever does not depend on it must get the documented answer. A transfer that
 * the client saw as whole must be whole.
 *
 * @module
 */
import { isOwnAnswer, ownAnswerProblem } from './own-answers.ts'
import type { Seen } from './soak-transfer.ts'

/** What a kind of request must bring. */
export interface Expectation {
  /** The answer when nothing is wrong: `200`, or one of the sidecar's own such as `400 InvalidToken`. */
  readonly answer: string
  /** Whether it goes to the upstream, and may share its fate. */
  readonly forwarded: boolean
  /** SHA-256 of the body, in hex, where it is known. */
  readonly sha256?: string
  /** SHA-256 that the upstream must have received, and told in its answer. */
  readonly sent?: string
  /** The client sends much: it may meet the reset of a connection that was refused before it has read why. */
  readonly sendsMuch?: boolean
  /** No body comes back, whatever the answer: the request is HEAD. */
  readonly head?: boolean
}

/** A word for the tally, and what was wrong. */
export interface Outcome {
  readonly word: string
  readonly problem?: string
}

/** The sidecar's answers when the upstream fails. */
const FAULTS = ['500 InternalError', '503 ServiceNotReady', '500 ?', '503 ?']

/** Judges what a client saw. */
export function outcomeOf(seen: Seen, expected: Expectation): Outcome {
  switch (seen.how) {
    case 'aborted':
      return { word: 'left' }
    case 'hung':
      return { word: 'hung', problem: 'no answer and no end' }
    case 'refused':
      if (expected.sendsMuch === true) return { word: 'refused' }
      return { word: 'refused', problem: `the connection broke before any answer: ${seen.why}` }
    case 'cut':
      if (expected.forwarded) return { word: 'cut' }
      return { word: 'cut', problem: `an answer of the sidecar was cut: ${seen.why}` }
    case 'answered':
      return answerOutcome(seen, expected)
  }
}

function answerOutcome(seen: Extract<Seen, { how: 'answered' }>, expected: Expectation): Outcome {
  const { answer, sha256 } = seen
  const word = String(answer.status)
  if (isOwnAnswer(answer)) {
    const own = ownAnswerProblem(answer, expected.head === true, undefined)
    if (own.problem !== undefined) return { word, problem: own.problem }
    const given = own.answer.trim()
    const known = expected.answer.replace(/ .*/, expected.head === true ? ' ?' : '$&')
    const fair = given === expected.answer || given === known || given === `${expected.answer} ?`
    if (fair || (expected.forwarded && FAULTS.includes(given))) return { word }
    return { word, problem: `answered ${given} instead of ${expected.answer}` }
  }
  if (word !== expected.answer) return { word, problem: `answered ${word} instead of ${expected.answer}` }
  if (expected.sha256 !== undefined && sha256 !== expected.sha256) {
    return { word, problem: `a whole response of ${seen.bytes} bytes with another SHA-256` }
  }
  if (expected.sent !== undefined && !answer.body.includes(`"${expected.sent}"`)) {
    return { word, problem: 'the upstream received other bytes than were sent' }
  }
  return { word }
}
