/**
 * Scopes: what a restricted credential or token may do, in the words of the WLCG token profile.
 * Each item, such as `storage.read:/photos`, allows one action on a path and all paths below it.
 * In: the text of a scope, a request. Out: whether the scope allows the request.
 * A path that an upstream could read in another way is never allowed (CVE-2025-54576).
 */
import { errorIn, failed, ok, type Result } from '../base/result.ts'
import type { HeaderLines } from '../http/headers.ts'
import type { RequestedAccess } from '../http/request-target.ts'
import { isWithin, originForm, pathOf, withoutFinalSlash } from '../http/request-target.ts'

type Action = 'read' | 'create' | 'modify'

/** A decoded path in two readings: an encoded slash is a separator, or a character of its segment. */
type Path = Readonly<Record<'separated' | 'literal', string>>

interface Item {
  readonly text: string
  readonly action: Action
  /** Without the slash at the end, so that the path `/` is an empty text. */
  readonly path: Path
}

export interface Scope {
  /** ASCII; empty when nothing is allowed. */
  readonly text: string
  readonly items: readonly Item[]
}

/** A scope of about 100 items still fits into a claim and a header line. */
const MAX_SCOPE_LENGTH = 4096

/** `error`: a phrase that follows the name of the field, and quotes nothing of `text`. */
export function parseScope(text: string): Result<Scope> {
  if (text === '') {
    return failed('must not be empty')
  }
  if (text.length > MAX_SCOPE_LENGTH) {
    return failed(`must have at most ${MAX_SCOPE_LENGTH} characters`)
  }
  const items: Item[] = []
  for (const [index, part] of text.split(' ').entries()) {
    const item = parseItem(part)
    if (!item.ok) {
      return failed(`has an invalid item ${index + 1}: ${item.error}`)
    }
    items.push(item.value)
  }
  return ok({ text, items })
}

export const scopeProblem = (text: string) => errorIn(parseScope(text))

/** Parses the scope of a credential, which was checked when it was loaded. @throws Error for another text */
export function parseStoredScope(text: string | null | undefined): Scope | undefined {
  if (text == null) {
    return undefined
  }
  const scope = parseScope(text)
  if (!scope.ok) {
    throw new Error(`a scope ${scope.error}`)
  }
  return scope.value
}

/** `undefined` is unrestricted. If one scope covers the other, the narrower scope is returned unchanged. */
export function intersectScopes(a: Scope | undefined, b: Scope | undefined): Scope | undefined {
  if (a === undefined || (b !== undefined && coversScope(a, b))) {
    return b
  }
  if (b === undefined || coversScope(b, a)) {
    return a
  }
  const items: Item[] = []
  for (const left of a.items) {
    for (const right of b.items) {
      const item = intersectItems(left, right)
      if (item !== undefined && !items.some((earlier) => coversItem(earlier, item))) {
        items.push(item)
      }
    }
  }
  return { text: items.map(({ text }) => text).join(' '), items }
}

export const coversScope = (a: Scope, b: Scope): boolean =>
  b.items.every((inner) => a.items.some((outer) => coversItem(outer, inner)))

export function scopeAllows(scope: Scope, request: RequestedAccess): boolean {
  const { method, host } = request
  const path = readPath(request.path)
  const headers = checkedHeaders(request.lines)
  if (path === undefined || headers === undefined || !mayReadSources(scope, headers, host)) {
    return false
  }
  switch (method) {
    case 'HEAD':
      return grants(scope, 'any', path)
    case 'GET':
    case 'OPTIONS':
    case 'PROPFIND':
      return grants(scope, 'read', path)
    case 'REPORT':
    case 'SEARCH':
      return grants(scope, 'read', ROOT) // the body names their targets
    case 'MKCOL':
      return grants(scope, changesMore(request.target, headers) ? 'modify' : 'create', path)
    case 'PUT':
      return changesMore(request.target, headers)
        ? grants(scope, 'modify', path)
        : mayWrite(scope, path, headers.conditions.get('if-none-match') ?? [], '*')
    case 'COPY':
    case 'MOVE': {
      const destination = readDestination(onlyLine(headers.paths.get('destination')), host)
      return (
        grants(scope, method === 'COPY' ? 'read' : 'modify', path) &&
        mayWrite(scope, destination, headers.conditions.get('overwrite') ?? [], 'F')
      )
    }
    default:
      return grants(scope, 'modify', path)
  }
}

/**
 * Whether a service may change what exists, whatever the condition of the request says: what a query
 * names, such as `?acl` and `?policy` of S3, or the rights of a bucket, which each PUT of it sets.
 */
const changesMore = (target: string, headers: CheckedHeaders): boolean =>
  target.includes('?') || headers.setRights // an empty query is a query

const ITEM = /^storage\.(read|create|modify):(\/[!-~]*)$/

function parseItem(text: string): Result<Item> {
  if (text === '') {
    return failed('one space separates items')
  }
  const [, action, rawPath = ''] = ITEM.exec(text) ?? []
  if (action !== 'read' && action !== 'create' && action !== 'modify') {
    return failed('it must be storage.read:, storage.create: or storage.modify: and an ASCII path')
  }
  if (/,(?:storage\.|$)/.test(rawPath)) {
    return failed('a space separates items, not a comma; a path that ends with a comma is written with %2C')
  }
  const path = /[?#]/.test(rawPath) ? undefined : readPath(rawPath)
  if (path === undefined) {
    return failed('its path must have one meaning, without query, dot segments and `//`')
  }
  const separated = withoutFinalSlash(path.separated)
  const literal = withoutFinalSlash(path.literal)
  return ok({ text, action, path: { separated, literal } })
}

/** Returns the lesser action on the inner path. Undefined if the items have nothing in common. */
function intersectItems(a: Item, b: Item): Item | undefined {
  const [outer, inner] = coversPath(a.path, b.path) ? [a, b] : [b, a]
  const [more, less] = includes(a.action, b.action) ? [a.action, b.action] : [b.action, a.action]
  if (!coversPath(outer.path, inner.path) || !includes(more, less)) {
    return undefined
  }
  const rawPath = inner.text.slice(inner.text.indexOf('/'))
  return { text: `storage.${less}:${rawPath}`, action: less, path: inner.path }
}

const coversItem = (outer: Item, inner: Item): boolean =>
  includes(outer.action, inner.action) && coversPath(outer.path, inner.path)

const coversPath = (outer: Path, inner: Path): boolean =>
  isWithin(inner.separated, outer.separated) && isWithin(inner.literal, outer.literal)

const includes = (action: Action, needed: Action | 'any'): boolean =>
  action === needed || needed === 'any' || (action === 'modify' && needed === 'create')

const ROOT: Path = { separated: '/', literal: '/' }

/** An undefined path is ambiguous, so no scope grants it. */
function grants({ items }: Scope, needed: Action | 'any', path: Path | undefined): boolean {
  if (path === undefined) {
    return false
  }
  const able = items.filter(({ action }) => includes(action, needed))
  const asSeparator = able.some((item) => isWithin(path.separated, item.path.separated))
  return asSeparator && able.some((item) => isWithin(path.literal, item.path.literal))
}

/**
 * `condition`: the lines of the header that makes the write conditional.
 * With the value `keeps`, it replaces no object.
 */
function mayWrite(scope: Scope, path: Path | undefined, condition: readonly string[], keeps: string) {
  if (condition.length > 0 && onlyLine(condition) === undefined) {
    return false
  }
  // An upstream that joins repeated lines would read `*, *`, which is not `*`. Go's WebDAV takes `f` for `T`.
  const replacesNothing = condition.length === 1 && condition[0] === keeps
  return grants(scope, replacesNothing ? 'create' : 'modify', path)
}

function mayReadSources(scope: Scope, headers: CheckedHeaders, host: string | undefined): boolean {
  for (const [name, lines] of headers.paths) {
    if (name !== 'destination' && !grants(scope, 'read', readCopySource(onlyLine(lines), host))) {
      return false
    }
  }
  return true
}

/**
 * Upstreams disagree on empty and dot segments (`..;`, `..` before a decoded `?`), backslashes,
 * controls, double encoding.
 */
const AMBIGUOUS = /\/\/|\\|\p{Cc}|%(?:2e|2f|5c)|\/\.\.?(?:[/;?#]|$)/iu

/** Undefined unless there is exactly one way to read the path. Each character of `raw` is one byte. */
function readPath(raw: string): Path | undefined {
  if (!raw.startsWith('/')) {
    return undefined
  }
  try {
    const separated = decodePath(raw)
    if (AMBIGUOUS.test(separated)) {
      return undefined
    }
    // The byte 0 stands for an encoded slash. No accepted path has a byte 0 of its own.
    return { separated, literal: /%2f/i.test(raw) ? decodePath(raw.replace(/%2f/gi, '%00')) : separated }
  } catch {
    return undefined // invalid percent-encoding or UTF-8
  }
}

function decodePath(raw: string): string {
  if (!/[%\x80-\xff]/.test(raw)) {
    return raw
  }
  return decodeURIComponent(raw.replace(/[\x80-\xff]/g, (byte) => `%${byte.charCodeAt(0).toString(16)}`))
}

function readDestination(value: string | undefined, host: string | undefined): Path | undefined {
  const target = originForm(value ?? '', host)
  return target === undefined || target.includes('?') ? undefined : readPath(target)
}

/** S3 SDKs send `bucket/key`, without a slash at the start. An ARN cannot be read as a path. */
function readCopySource(line: string | undefined, host: string | undefined): Path | undefined {
  const value = line ?? ''
  const target = originForm(/^[^/:]+(?:\/|$)/.test(value) ? `/${value}` : value, host)
  if (target === undefined) {
    return undefined
  }
  const path = pathOf(target)
  // An upstream without versions reads the parameter as a part of the path,
  // so this reading must be clear, too.
  const isVersion = target.startsWith('?versionId=', path.length) && readPath(target) !== undefined
  return path === target || isVersion ? readPath(path) : undefined
}

/** The lines that reach the upstream, by their names in lower case. */
interface CheckedHeaders {
  readonly conditions: ReadonlyMap<string, readonly string[]>
  readonly paths: ReadonlyMap<string, readonly string[]>
  /** Whether a line says who may use a resource. */
  readonly setRights: boolean
}

/** Undefined if a header cannot be checked. */
function checkedHeaders(lines: HeaderLines): CheckedHeaders | undefined {
  const conditions = new Map<string, string[]>()
  const paths = new Map<string, string[]>()
  let setRights = false
  for (const line of lines.kinds.keys()) {
    const { adds } = lines.rule(line)
    if (adds === 'uncheckable') {
      return undefined
    }
    if (adds === 'nothing' || lines.isNamedByConnection(line)) {
      continue
    }
    if (adds === 'rights') {
      setRights = true
    } else {
      addValue(adds === 'path' ? paths : conditions, lines, line)
    }
  }
  return { conditions, paths, setRights }
}

function addValue(valuesByName: Map<string, string[]>, lines: HeaderLines, line: number): void {
  const name = lines.name(line).toLowerCase()
  const values = valuesByName.get(name) ?? []
  values.push(lines.value(line))
  valuesByName.set(name, values)
}

/** Returns undefined if there is no line, or if two lines differ. */
const onlyLine = (lines: readonly string[] = []): string | undefined =>
  lines.every((line) => line === lines[0]) ? lines[0] : undefined
