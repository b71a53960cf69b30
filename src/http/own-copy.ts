/**
 * Copies text before a cache keeps it.
 * V8 represents a slice by a reference to the text it was cut from, and a concatenation by a tree of its pieces: a cached
 * token would keep the complete header line in memory, a cached name the complete head.
 */

/** `text`: Latin-1, as Node decodes header fields. */
export function ownCopy(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1')
}
