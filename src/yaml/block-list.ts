/**
 * Cuts a YAML text of one long list into the texts of its members.
 *
 * In: a text. Out: one text for each member of the list, every one of them YAML by itself that means what it means
 * in its place; and whether the text is `name:` with a block list below it at all. So a list of any length is read
 * piece by piece, and traffic goes on in between; all at once, YAML holds the process for a second, and some 400 MB,
 * for 100,000 members.
 *
 * Why the cut is sound: in a block list whose dashes stand in one column, whatever belongs to a member is indented
 * further (YAML 1.2, section 8.2.1), so that a dash in that column begins the next one and nothing else.
 *
 * @module
 */

/** One member, beginning with its dash, or with the space before it. */
export interface ListMember {
  readonly text: string
  /** The line it begins in, counted from 1. */
  readonly line: number
}

/** How many lines are one step of the work. */
const STEP_LINES = 256

const NOTHING = /^[ \t]*(?:#.*)?\r?$/
const BEGINNING = /^---[ \t]*\r?$/
const FIRST_DASH = /^( *)-(?: |\r?$)/

/**
 * Cuts the list that is the value of `name`, the only member of the document.
 *
 * @yields a member, or nothing from time to time where one is long, so that the work can be interrupted
 * @returns whether the text is such a list; when it is not, the members before are to be thrown away
 */
export function* cutBlockList(text: string, name: string): Generator<ListMember | undefined, boolean> {
  const head = new RegExp(`^${name}:[ \\t]*(?:#.*)?\\r?$`)
  let inList = false
  let dash: string | undefined
  let deeper = ''
  let from = 0
  let fromLine = 0
  for (let at = 0, line = 1; at < text.length; line++) {
    const newline = text.indexOf('\n', at)
    const lineEnd = newline < 0 ? text.length : newline
    const content = text.slice(at, lineEnd)
    if (dash === undefined) {
      const first = inList ? FIRST_DASH.exec(content) : null
      if (first !== null) {
        dash = `${first[1]}-`
        deeper = `${first[1]} `
        from = at
        fromLine = line
      } else if (!inList && head.test(content)) {
        inList = true
      } else if (!NOTHING.test(content) && !(line === 1 && BEGINNING.test(content))) {
        return false
      }
    } else if (content.startsWith(dash) && FIRST_DASH.test(content)) {
      yield { text: text.slice(from, at), line: fromLine }
      from = at
      fromLine = line
    } else if (!content.startsWith(deeper) && !NOTHING.test(content)) {
      return false
    }
    at = lineEnd + 1
    if (line % STEP_LINES === 0) yield
  }
  if (dash === undefined) return false
  yield { text: text.slice(from), line: fromLine }
  return true
}
