/** Tables of the documentation. */
import { readFileSync } from 'node:fs'

/** The rows of the table under a heading, each cell by its column's title. */
export function tableUnder(path: string, heading: string): Record<string, string>[] {
  const text = readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
  const [, section = ''] = text.split(`${heading}\n`)
  const lines =
    section
      .split(/\n#+ /, 1)[0]
      ?.split('\n')
      .filter((line) => line.startsWith('|')) ?? []
  const rows = lines.map((line) =>
    line
      .split(/(?<!\\)\|/)
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
  const [titles = [], , ...cells] = rows
  return cells.map((row) => Object.fromEntries(titles.map((title, at) => [title, row[at] ?? ''])))
}

/** What stands between backquotes. */
export function codeIn(cell = ''): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, code]) => code ?? '')
}
