/**
 * Random damage to bytes.
 *
 * In: a message. Out: the message with a few of its bytes changed, lost, doubled or moved, most of all around the
 * places that parsers differ on: line ends, colons, digits of lengths.
 *
 * @module
 */
import type { Random } from './random.ts'

/** Bytes that parsers differ on. */
const TELLING = ['\r', '\n', '\r\n', '\0', '\t', ' ', ':', ';', ',', '\x0b', '\x7f', '\xff', '0', '1', '"']

/** Damages a message in one to four places. */
export function mutate(random: Random, message: string): string {
  let mutated = message
  for (let times = random.int(1, 4); times > 0; times--) mutated = mutateOnce(random, mutated)
  return mutated
}

function mutateOnce(random: Random, message: string): string {
  const at = placeIn(random, message)
  const length = random.weighted([
    [6, 1],
    [3, 2],
    [1, random.int(3, 40)],
  ])
  const before = message.slice(0, at)
  const chosen = message.slice(at, at + length)
  const after = message.slice(at + length)
  switch (random.int(0, 6)) {
    case 0:
      return before + random.pick(TELLING) + chosen + after
    case 1:
      return before + random.pick(TELLING) + after
    case 2:
      return before + after
    case 3:
      return before + chosen + chosen + after
    case 4:
      return before + String.fromCharCode(random.int(0, 255)) + after
    case 5:
      return before + chosen.replace(/[A-Za-z]/g, otherCase) + after
    default: {
      const to = placeIn(random, before + after)
      const rest = before + after
      return rest.slice(0, to) + chosen + rest.slice(to)
    }
  }
}

function otherCase(letter: string): string {
  const lower = letter.toLowerCase()
  return letter === lower ? letter.toUpperCase() : lower
}

/** A place in a message; every second time one beside a line end or a colon. */
function placeIn(random: Random, message: string): number {
  const at = random.int(0, Math.max(0, message.length - 1))
  if (random.chance(0.5)) return at
  const near = message.indexOf(random.pick(['\r\n', ':', ' ', '0']), at)
  return near < 0 ? at : Math.min(near + random.int(0, 2), message.length)
}
