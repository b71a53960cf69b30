/**
 * The options of `Connection` (RFC 9110, section 7.6.1), of requests and responses alike.
 * In: their values. Out: their options in lower case, `close` and the names of hop-by-hop fields among them.
 */
import { HeaderKind, headerKind, isFramingOrAuthorization } from './header-names.ts'

export type ConnectionOptions = ReadonlySet<string>

/** The usual values, parsed once. */
const USUAL: ReadonlyMap<string, ConnectionOptions> = new Map(
  ['keep-alive', 'close'].map((option) => [option, new Set([option])]),
)

/** `value`: of one line, or of several, joined by commas. */
export function connectionOptions(value: string): ConnectionOptions {
  const usual = USUAL.get(value)
  if (usual !== undefined) return usual
  const options = new Set<string>()
  for (const part of value.split(',')) {
    const option = part.trim().toLowerCase()
    if (option !== '') options.add(option)
  }
  return options
}

/** Whether removing the named fields would change framing or identity. */
export function nominatesFramingOrIdentity(options: ConnectionOptions): boolean {
  for (const option of options) {
    const kind = headerKind(option)
    if (kind === HeaderKind.identity || kind === HeaderKind.refusedLookAlike) return true
    if (isFramingOrAuthorization(kind)) return true
  }
  return false
}

/**
 * A trailer must not be a field that the sidecar or one hop interprets (RFC 9110, section 6.5.1).
 * @param isScoped - a scope or a link restricts the caller: it has judged the head, and an upstream may merge both
 */
export function isTrailer(name: string, options: ConnectionOptions | undefined, isScoped = false): boolean {
  const kind = headerKind(name)
  const passes =
    kind === HeaderKind.deciding || kind === HeaderKind.refusedIfScoped
      ? !isScoped
      : kind === HeaderKind.other
  return passes && !options?.has(name.toLowerCase())
}
