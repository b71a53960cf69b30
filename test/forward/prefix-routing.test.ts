import fc from 'fast-check'
import t from 'tap'
import { createPrefixRouting } from '../../src/forward/prefix-routing.ts'

/** Prefixes to the upstream of the same name. */
function routing(...prefixes: readonly string[]): (path: string) => string | undefined {
  return createPrefixRouting(prefixes.map((prefix) => ({ prefix, upstream: prefix })))
}

t.test('a path belongs to the longest prefix that ends on a segment boundary', async (t) => {
  const upstreamOf = routing('/', '/a', '/a/b/', '/ab')
  for (const [path, upstream] of [
    ['/', '/'],
    ['/x', '/'],
    ['/a', '/a'],
    ['/a/', '/a'],
    ['/a/x', '/a'],
    ['/a//b', '/a'],
    ['/a/b', '/a/b/'],
    ['/a/b/', '/a/b/'],
    ['/a/b/c', '/a/b/'],
    ['/a/bc', '/a'],
    ['/ab', '/ab'],
    ['/ab/c', '/ab'],
    ['/abc', '/'],
    ['/a;x', '/'],
    ['/a.b', '/'],
    ['/A', '/'],
    ['/%61', '/'],
    ['/a%2fb', '/'],
    ['/a\\b', '/'],
    ['//a', '/'],
    ['/x/../a', '/'],
    ['/./a', '/'],
    ['/a/../x', '/a'],
  ] as const) {
    t.equal(upstreamOf(path), upstream, path)
  }
})

t.test('a path that no prefix matches has no upstream', async (t) => {
  for (const upstreamOf of [routing('/a'), routing('/a/'), routing('/a', '/b')]) {
    t.equal(upstreamOf('/'), undefined)
    t.equal(upstreamOf('/ab'), undefined)
    t.equal(upstreamOf('/x/a'), undefined)
    t.equal(upstreamOf('/a')?.startsWith('/a'), true)
  }
  t.equal(routing()('/'), undefined)
})

t.test('an only upstream at the root gets everything', async (t) => {
  for (const path of ['/', '/a', '//', '/%00']) t.equal(routing('/')(path), '/')
})

t.test('routing agrees with the segments of paths, whatever the order of the prefixes', async (t) => {
  const segments = fc.array(fc.constantFrom('a', 'b', 'ab', 'a.b', '%61', '', '..'), { maxLength: 4 })
  const path = segments.map((list) => `/${list.join('/')}`)
  const prefix = fc
    .tuple(path, fc.boolean())
    .map(([text, slash]) => (slash && !text.endsWith('/') ? `${text}/` : text))
  const prefixes = fc.uniqueArray(prefix, { maxLength: 5, selector: (text) => text.replace(/\/$/, '') })
  /** The oracle: whether all segments of a prefix are the first of the path. */
  const holds = (text: string, of: string) => {
    const wanted = of.replace(/\/$/, '').split('/')
    const given = text.split('/')
    return wanted.length <= given.length && wanted.every((segment, at) => segment === given[at])
  }
  const property = fc.property(prefixes, path, (list, text) => {
    const matching = list.filter((of) => holds(text, of)).sort((a, b) => b.length - a.length)
    return routing(...list)(text) === matching[0]
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 5000 }))
})
