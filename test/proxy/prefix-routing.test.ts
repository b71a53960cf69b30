import t from 'tap'
import { createPrefixRouting } from '../../src/proxy/forward.ts'

function routing(...prefixes: readonly string[]): (path: string) => string | undefined {
  const upstreamOf = createPrefixRouting(prefixes.map((prefix) => ({ prefix })))
  return (path) => upstreamOf(path)?.prefix
}

t.test(
  'a path belongs to the longest prefix that ends on a segment boundary, by its raw bytes',
  async (t) => {
    const upstreamOf = routing('/a', '/', '/a/b/', '/ab')
    const table: Readonly<Record<string, readonly string[]>> = {
      '/': ['/', '/x', '/abc', '/a;x', '/a.b', '/A', '/%61', '/a%2fb', '/a\\b', '//a', '/x/../a', '/./a'],
      '/a': ['/a', '/a/', '/a/x', '/a//b', '/a/bc', '/a/../x'],
      '/a/b/': ['/a/b', '/a/b/', '/a/b/c'],
      '/ab': ['/ab', '/ab/c'],
    }
    for (const [prefix, paths] of Object.entries(table))
      for (const path of paths) t.equal(upstreamOf(path), prefix, path)
    for (const path of ['/', '/ab', '/x/a']) t.equal(routing('/a')(path), undefined, path)
  },
)
