/**
 * Every regular expression of the program takes time linear in its input:
 * strangers choose what many of them meet.
 */
import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'

/** The default of `limits.headerBytes`: no other text of a stranger is longer. */
const LENGTH = 16_384
const MAX_MS = 5

/** A literal where an expression may begin: no division, and no path in a text. */
const LITERAL =
  /(?:[(,=:[!&|?{};]|=>|return)\s*\/((?![*/ ])(?:\\.|\[(?:\\.|[^\]\\\n])+\]|[^/\\[\n])+)\/([dgimsuy]*)/g

interface Literal {
  readonly where: string
  readonly expression: RegExp
}

function literals(): Literal[] {
  const files = readdirSync('src', { encoding: 'utf8', recursive: true }).filter((name) =>
    name.endsWith('.ts'),
  )
  return files.flatMap((file) => {
    const code = readFileSync(`src/${file}`, 'utf8').replace(/^\s*(?:\/\*\*|\*|\/\/).*$/gm, '')
    return [...code.matchAll(LITERAL)].flatMap(([, source = '', flags]) => {
      try {
        return [{ where: `${file}: /${source}/${flags}`, expression: new RegExp(source, flags) }]
      } catch {
        return []
      }
    })
  })
}

/**
 * One repeated character and two alternating ones,
 * alone and between others, of those that the expression names.
 */
function* inputs({ source }: RegExp): Generator<string> {
  const named = source.replace(/\\[a-zA-Z]|\\x[0-9a-f]{2}/gi, '')
  const characters = [...new Set(`${named}a0-, \t.%="/\r\n\x80`)]
  for (const first of characters) {
    for (const second of characters) {
      const run = (first + second).repeat(LENGTH / 2)
      yield run
      yield `x${run}!`
    }
  }
}

function milliseconds(expression: RegExp, text: string): number {
  const before = process.cpuUsage()
  if (expression.global) {
    text.replace(expression, '')
  } else {
    expression.test(text)
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** The input that takes too long, if there is one. */
function tooSlow(expression: RegExp): string | undefined {
  for (const text of inputs(expression)) {
    let least = milliseconds(expression, text)
    // Another thread may have collected garbage for a moment, once or twice.
    for (let again = 0; least >= MAX_MS && least < 20 * MAX_MS && again < 3; again++) {
      least = Math.min(least, milliseconds(expression, text))
    }
    if (least >= MAX_MS) {
      return `${least} ms for ${JSON.stringify(text.slice(0, 6))}…`
    }
  }
  return undefined
}

t.test('no regular expression backtracks over a long input', async (t) => {
  for (const quadratic of [/^-+|-+$/g, /\s*,/]) {
    t.ok(tooSlow(quadratic), `${quadratic} would be found`)
  }
  const all = literals()
  t.ok(all.length > 80, `${all.length} regular expressions`)
  for (const { where, expression } of all) {
    t.equal(tooSlow(expression), undefined, where)
  }
})
