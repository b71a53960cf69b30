/**
 * What `Connection` makes hop-by-hop (RFC 9110, section 7.6.1).
 *
 * @module
 */
import { HeaderKind, headerKind } from './header-names.ts'

/**
 * Adds the names that one `Connection` line nominates.
 *
 * @returns undefined when a name is nominated that must arrive: obeying it would remove the framing or the
 *   identity, ignoring it would leave the client in a wrong belief
 */
export function nominate(names: Set<string> | undefined, value: string): Set<string> | undefined {
  const all = names ?? new Set<string>()
  for (const part of value.split(',')) {
    const name = part.trim().toLowerCase()
    switch (headerKind(name)) {
      case HeaderKind.host:
      case HeaderKind.authorization:
      case HeaderKind.contentLength:
      case HeaderKind.transferEncoding:
      case HeaderKind.lookAlike:
      case HeaderKind.identity:
        return undefined
    }
    if (name !== '') all.add(name)
  }
  return all
}
