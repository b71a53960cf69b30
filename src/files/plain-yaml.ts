/**
 * Reads the plain layout of YAML that this program's commands write: block lists and maps, one scalar a line.
 * In: text.
 * Out: what a YAML 1.2 parser would return, or undefined for any other layout, which only a parser may judge.
 * A parser builds a node for each scalar: for a list of 50,000 credentials it takes nine seconds and 700 MB.
 */

/** A line of a map, such as `  - accessKey: AK1`, where `  ` and `- ` may be missing, and the scalar too. */
const LINE = /^( *)(- )?([A-Za-z]\w*):(?: (.+))?$/

const BLANK_OR_COMMENT = /^ *(?:#.*)?$/

/**
 * Words of letters, digits and signs that have no meaning in YAML.
 * The names and hashes of most files are such words.
 */
const PLAIN_SCALAR = /^[\w$./][\w$./,+=@~:-]*(?: [\w$./,+=@~:-]+)*$/

/** What the core schema of YAML 1.2 reads as null, a boolean or a number (section 10.3.2). */
const NOT_TEXT =
  /^(?:null|Null|NULL|~|true|True|TRUE|false|False|FALSE|[-+]?\d+|0o[0-7]+|0x[\da-fA-F]+|[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/

/** A text in quotes, without escapes and control characters. */
const QUOTED_SCALAR = /^(?:"[^"\\\p{Cc}]*"|'[^'\p{Cc}]*')$/u

interface Line {
  readonly indent: number
  /** The line begins an item of a list. Its map is indented by two columns more than the dash. */
  readonly isItem: boolean
  readonly key: string
  /** Undefined if a list or a map follows. */
  readonly scalar: string | undefined
}

class NotPlain extends Error {}

type PlainMap = Record<string, unknown>

export function readPlainYaml(text: string): PlainMap | undefined {
  try {
    return new PlainReader(text).readAll()
  } catch (error) {
    if (error instanceof NotPlain) {
      return undefined
    }
    throw error
  }
}

class PlainReader {
  readonly #lines: readonly string[]
  #at = 0
  #next: Line | undefined

  constructor(text: string) {
    this.#lines = text.split('\n')
    this.#next = this.#readLine()
  }

  readAll(): PlainMap {
    const map = this.#readMap(0)
    if (this.#next !== undefined) {
      throw new NotPlain()
    }
    return map
  }

  /** Reads the lines that are indented by exactly `indent`, with what is below them. */
  #readMap(indent: number): PlainMap {
    const map: PlainMap = {}
    let isFirst = true
    while (this.#next !== undefined && columnOf(this.#next) === indent) {
      const { isItem, key, scalar } = this.#next
      if (isItem && !isFirst) {
        break // the next item of the list
      }
      if (Object.hasOwn(map, key)) {
        throw new NotPlain()
      }
      this.#next = this.#readLine()
      map[key] = scalar === undefined ? this.#readList(indent) : scalarValue(scalar)
      isFirst = false
    }
    if (isFirst) {
      throw new NotPlain()
    }
    return map
  }

  /** @param above - the indentation of the map that has the list */
  #readList(above: number): PlainMap[] {
    const items: PlainMap[] = []
    const indent = this.#next?.indent ?? 0
    if (indent <= above) {
      throw new NotPlain()
    }
    while (this.#next?.isItem === true && this.#next.indent === indent) {
      items.push(this.#readMap(indent + 2))
    }
    if (items.length === 0) {
      throw new NotPlain()
    }
    return items
  }

  #readLine(): Line | undefined {
    while (this.#at < this.#lines.length) {
      const text = this.#lines[this.#at] ?? ''
      this.#at++
      if (!BLANK_OR_COMMENT.test(text)) {
        return lineIn(text)
      }
    }
    return undefined
  }
}

function lineIn(text: string): Line {
  const found = LINE.exec(text)
  if (found === null) {
    throw new NotPlain()
  }
  const [, indentation = '', dash, key = '', scalar] = found
  return { indent: indentation.length, isItem: dash !== undefined, key, scalar }
}

/** The column of the key. */
const columnOf = ({ indent, isItem }: Line) => (isItem ? indent + 2 : indent)

function scalarValue(scalar: string): string | boolean {
  if (QUOTED_SCALAR.test(scalar)) {
    return scalar.slice(1, -1)
  }
  if (scalar === 'true' || scalar === 'false') {
    return scalar === 'true'
  }
  const endsKey = scalar.includes(': ') || scalar.endsWith(':')
  if (endsKey || !PLAIN_SCALAR.test(scalar) || NOT_TEXT.test(scalar)) {
    throw new NotPlain()
  }
  return scalar
}
