/**
 * Which upstream a path belongs to.
 *
 * The longest matching prefix wins, on segment boundaries: `/a` takes `/a`, `/a/` and `/a/b`, never `/ab`. Only
 * raw bytes are compared; no path is decoded or normalised.
 *
 * @module
 */

/** Makes the function that finds the upstream of a path; undefined where no prefix matches. */
export function createPrefixRouting<T>(
  entries: readonly { readonly prefix: string; readonly upstream: T }[],
): (path: string) => T | undefined {
  const longestFirst = entries
    .map(({ prefix, upstream }) => ({ prefix: prefix.replace(/\/$/, ''), upstream }))
    .sort((a, b) => b.prefix.length - a.prefix.length)
  const [only] = longestFirst
  if (longestFirst.length === 1 && only?.prefix === '') return () => only.upstream
  return (path) => {
    for (const { prefix, upstream } of longestFirst) {
      if (!path.startsWith(prefix)) continue
      if (path.length === prefix.length || path.charCodeAt(prefix.length) === 0x2f) return upstream
    }
    return undefined
  }
}
