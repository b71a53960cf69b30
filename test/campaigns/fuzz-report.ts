/**
 * What the fuzz run prints.
 *
 * @module
 */
import type { Script, Shelf } from './fuzz-requests.ts'

/**
 * Bytes as text on which nothing is lost: escaped as in a string of JavaScript, tokens by their names, and a run of equal
 * parts as `{{"part" x times}}`.
 */
export function escaped(bytes: string, { good, bad }: Pick<Shelf, 'good' | 'bad'>): string {
  let text = bytes
  for (const [kind, tokens] of [
    ['bad', bad],
    ['good', good],
  ] as const) {
    const longestFirst = tokens
      .map((token, at) => [token, at] as const)
      .sort(([a], [b]) => b.length - a.length)
    for (const [token, at] of longestFirst) {
      if (token.length > 20) text = text.replaceAll(token, `{{${kind} token ${at}}}`)
    }
  }
  text = text.replace(/([\s\S]{1,40}?)\1{14,}/g, (run, part: string) =>
    part.length * 15 < 30 ? run : `{{${JSON.stringify(part)} x ${run.length / part.length}}}`,
  )
  return text.replace(/[^\x20-\x7e]|\\/g, (character) => {
    const known = { '\r': '\\r', '\n': '\\n', '\t': '\\t', '\\': '\\\\' }[character]
    return known ?? `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`
  })
}

/** A script, a line for each line of its bytes; of its replies as many as it can have used. */
export function describeScript(script: Script, shelf: Shelf): string {
  const lines = script.bytes
    .split(/(?<=\r\n)/)
    .map((line) => `    ${escaped(line, shelf)}`)
    .join('\n')
  const cuts = script.cuts.length > 0 ? `\n  cut into writes at ${script.cuts.join(', ')}` : ''
  const heads = script.bytes.split('HTTP/1.').length - 1
  const replies = script.replies
    .slice(0, heads)
    .map(({ pieces, ending, early }, at) => {
      const texts = pieces.map((piece) => `"${escaped(piece, shelf)}"`).join(' + ')
      return `\n  reply ${at}${early ? ', before the body' : ''}: ${texts} then ${ending}`
    })
    .join('')
  return `  the client sends, and then leaves by ${script.leave}:\n${lines}${cuts}${replies}`
}

/** Counts things by name. */
export class Tally {
  readonly #counts = new Map<string, number>()

  add(name: string): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1)
  }

  /** `name count`, the most frequent first. */
  toString(): string {
    return [...this.#counts]
      .sort(([, a], [, b]) => b - a)
      .map(([name, count]) => `${name} ${count}`)
      .join(', ')
  }
}
