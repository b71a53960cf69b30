/**
 * The files that `docker build` is given: a directory less what its .dockerignore leaves out.
 *
 * Patterns are path.Match's with `**`, relative to the directory; a pattern that matches a directory matches what
 * is in it; `!` takes a file back in; the last pattern that matches counts.
 *
 * @module
 */
import { cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

interface Pattern {
  readonly include: boolean
  readonly text: string
  readonly matches: RegExp
}

/** Copies what is not ignored; returns the paths of the files copied, relative to `from`. */
export function copyContext(from: string, to: string): string[] {
  const patterns = parseDockerignore(readFileSync(join(from, '.dockerignore'), 'utf8'))
  const copied: string[] = []
  const walk = (directory: string) => {
    for (const entry of readdirSync(join(from, directory), { withFileTypes: true })) {
      const path = directory === '' ? entry.name : `${directory}/${entry.name}`
      const ignored = isIgnored(path, patterns)
      if (entry.isDirectory()) {
        // Nothing in an ignored directory can come back unless a pattern says so.
        if (!ignored || patterns.some(({ include, text }) => include && text.startsWith(`${path}/`)))
          walk(path)
      } else if (!ignored) {
        mkdirSync(dirname(join(to, path)), { recursive: true })
        cpSync(join(from, path), join(to, path))
        copied.push(path)
      }
    }
  }
  walk('')
  return copied.sort()
}

/** The patterns of a .dockerignore, in order. */
export function parseDockerignore(text: string): readonly Pattern[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const include = line.startsWith('!')
      const pattern = line.slice(include ? 1 : 0).replace(/^\/|\/$/g, '')
      const source = pattern
        .split(/(\*\*\/|\*\*|\*|\?)/)
        .map((part) => WILDCARDS.get(part) ?? part.replace(/[.+^${}()|[\]\\]/g, '\\$&'))
        .join('')
      return { include, text: pattern, matches: new RegExp(`^${source}(?:/|$)`) }
    })
}

const WILDCARDS = new Map([
  ['**/', '(?:.*/)?'],
  ['**', '.*'],
  ['*', '[^/]*'],
  ['?', '[^/]'],
])

/** Whether a path is left out. */
export function isIgnored(path: string, patterns: readonly Pattern[]): boolean {
  return patterns.reduce((ignored, { include, matches }) => (matches.test(path) ? !include : ignored), false)
}
