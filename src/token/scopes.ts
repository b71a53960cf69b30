/**
 * Scopes: what a restricted credential or token may do, with the names of the WLCG token profile.
 * In: a scope's text, a request. Out: whether the scope allows the request. A path that an upstream could read in
 * another way is never allowed (CVE-2025-54576), nor is a header that names a second path unreadably.
 */
import { type ConnectionOptions, headerKind } from '../http/headers.ts'
import { isWithin, originForm, pathOf } from '../http/request-target.ts'
import { failed, type Result } from '../values/problem.ts'

type Action = 'read' | 'create' | 'modify'

/** A percent-decoded path with each encoded slash read as a separator, and as a character of its segment. */
interface Path {
  readonly separated: string
  readonly literal: string
}

/** Its path has no slash at its end: that of `/` is empty. */
interface Item extends Path {
  readonly text: string
  readonly action: Action
}

export interface Scope {
  /** In ASCII. Empty when nothing is allowed. */
  readonly text: string
  readonly items: readonly Item[]
}

/** About 100 items. The scope becomes a claim and a header line. */
export const MAX_SCOPE_LENGTH = 4096

const ITEM = /^storage\.(read|create|modify):(\/[!-~]*)$/

/** A reason follows the name of the field and repeats nothing of the text. */
export function parseScope(text: string): Result<Scope> {
  if (text === '') return failed('must not be empty')
  if (text.length > MAX_SCOPE_LENGTH) return failed(`must have at most ${MAX_SCOPE_LENGTH} characters`)
  const items: Item[] = []
  for (const [index, part] of text.split(' ').entries()) {
    const place = `has an invalid item ${index + 1}:`
    const [, action, path = ''] = ITEM.exec(part) ?? []
    if (part === '') return failed(`${place} one space separates items`)
    if (action !== 'read' && action !== 'create' && action !== 'modify')
      return failed(`${place} it must be storage.read:, storage.create: or storage.modify: and an ASCII path`)
    const read = /[?#]/.test(path) ? undefined : readPath(path)
    if (read === undefined)
      return failed(`${place} its path must have one meaning, without query, dot segments and \`//\``)
    items.push({ text: part, action, separated: bare(read.separated), literal: bare(read.literal) })
  }
  return { ok: true, value: { text, items } }
}

export function scopeProblem(text: string): string | undefined {
  const scope = parseScope(text)
  return scope.ok ? undefined : scope.reason
}

/** @throws Error for a text that was not checked when it was loaded */
export function validScope(text: string | null | undefined): Scope | undefined {
  if (text == null) return undefined
  const scope = parseScope(text)
  if (!scope.ok) throw new Error(`a scope ${scope.reason}`)
  return scope.value
}

function bare(path: string): string {
  return path.endsWith('/') ? path.slice(0, -1) : path
}

/** What both allow; `undefined` is unrestricted. Where one covers the other, its text stays as it is. */
export function intersectScopes(a: Scope | undefined, b: Scope | undefined): Scope | undefined {
  if (a === undefined || (b !== undefined && coversScope(a, b))) return b
  if (b === undefined || coversScope(b, a)) return a
  const shared = new Map<string, Item>()
  for (const left of a.items) {
    for (const right of b.items) {
      const path = coversPath(left, right) ? right : coversPath(right, left) ? left : undefined
      const action = weaker(left.action, right.action)
      if (path === undefined || action === undefined) continue
      const text = `storage.${action}:${path.text.slice(path.text.indexOf('/'))}`
      shared.set(text, { text, action, separated: path.separated, literal: path.literal })
    }
  }
  const all = [...shared.values()]
  const items = all.filter((item, at) => !all.slice(0, at).some((other) => coversItem(other, item)))
  return { text: items.map((item) => item.text).join(' '), items }
}

export function coversScope(a: Scope, b: Scope): boolean {
  return b.items.every((inner) => a.items.some((outer) => coversItem(outer, inner)))
}

function coversItem(outer: Item, inner: Item): boolean {
  return includes(outer.action, inner.action) && coversPath(outer, inner)
}

function coversPath(outer: Path, inner: Path): boolean {
  return isWithin(inner.separated, outer.separated) && isWithin(inner.literal, outer.literal)
}

function includes(has: Action, needed: Action): boolean {
  return has === needed || (has === 'modify' && needed === 'create')
}

function weaker(a: Action, b: Action): Action | undefined {
  return includes(a, b) ? b : includes(b, a) ? a : undefined
}

export interface ScopedRequest {
  readonly method: string
  /** The target's bytes before `?`. */
  readonly path: string
  readonly host: string | undefined
  /** Names and values, alternating. */
  readonly rawHeaders: readonly string[]
  readonly connectionOptions: ConnectionOptions | undefined
}

export function allows(scope: Scope, request: ScopedRequest): boolean {
  const { method, host } = request
  const path = readPath(request.path)
  const headers = scopeHeaders(request)
  if (path === undefined || headers === undefined) return false
  for (const name of headers.keys()) {
    if (name === 'destination' || headerKind(name) !== 'secondPath') continue
    const source = readCopySource(onlyValue(headers, name), host)
    if (source === undefined || !grants(scope, 'read', source)) return false
  }
  switch (method) {
    case 'HEAD':
      return grants(scope, undefined, path)
    case 'GET':
    case 'OPTIONS':
    case 'PROPFIND':
      return grants(scope, 'read', path)
    case 'REPORT':
    case 'SEARCH':
      return grants(scope, 'read', ROOT) // the body names their targets
    case 'MKCOL':
      return grants(scope, 'create', path)
    case 'PUT': {
      const condition = onlyValue(headers, 'if-none-match')
      const isNew = condition === '*' && isOnce(headers, 'if-none-match')
      return condition !== CONFLICT && grants(scope, isNew ? 'create' : 'modify', path)
    }
    case 'COPY':
    case 'MOVE': {
      const overwrite = onlyValue(headers, 'overwrite')
      const destination = readDestination(onlyValue(headers, 'destination'), host)
      if (destination === undefined || overwrite === CONFLICT) return false
      const keeps = overwrite?.toUpperCase() === 'F' && isOnce(headers, 'overwrite')
      const neededThere = keeps ? 'create' : 'modify'
      const neededHere = method === 'COPY' ? 'read' : 'modify'
      return grants(scope, neededHere, path) && grants(scope, neededThere, destination)
    }
    default:
      return grants(scope, 'modify', path)
  }
}

const ROOT: Path = { separated: '/', literal: '/' }

/** `needed`: undefined for any action. Both meanings of an encoded slash must be covered. */
function grants({ items }: Scope, needed: Action | undefined, { separated, literal }: Path): boolean {
  const able = items.filter(({ action }) => needed === undefined || includes(action, needed))
  const asSeparator = able.some((item) => isWithin(separated, item.separated))
  return asSeparator && able.some((item) => isWithin(literal, item.literal))
}

/** An empty or dot segment (`..;` is one to Tomcat), a backslash, a control, or what a second decoding would change. */
const AMBIGUOUS = /\/\/|\\|\p{Cc}|%(?:2e|2f|5c)|\/\.\.?(?:[/;]|$)/iu

/** Returns undefined unless there is exactly one way to read the path. Each character of `raw` is one byte. */
function readPath(raw: string): Path | undefined {
  if (!raw.startsWith('/')) return undefined
  try {
    const separated = decode(raw)
    if (AMBIGUOUS.test(separated)) return undefined
    // The byte 0 stands for an encoded slash: no path that is accepted has another.
    return { separated, literal: /%2f/i.test(raw) ? decode(raw.replace(/%2f/gi, '%00')) : separated }
  } catch {
    return undefined // invalid percent-encoding or UTF-8
  }
}

function decode(raw: string): string {
  if (!/[%\x80-\xff]/.test(raw)) return raw
  return decodeURIComponent(raw.replace(/[\x80-\xff]/g, (byte) => `%${byte.charCodeAt(0).toString(16)}`))
}

function readDestination(value: string | undefined, host: string | undefined): Path | undefined {
  const target = originForm(value ?? '', host)
  return target === undefined || target.includes('?') ? undefined : readPath(target)
}

/** S3 SDKs send `bucket/key`. An ARN has no reading as a path. */
function readCopySource(value = '', host: string | undefined): Path | undefined {
  const target = originForm(/^[^/:]+(?:\/|$)/.test(value) ? `/${value}` : value, host)
  if (target === undefined) return undefined
  const path = pathOf(target)
  // To an upstream without versions the parameter is a part of the path.
  const isVersion = target.startsWith('?versionId=', path.length) && readPath(target) !== undefined
  return path === target || isVersion ? readPath(path) : undefined
}

/** The headers on which the needed scope depends, in lower case, with their values: those that reach the upstream. */
type ScopeHeaders = ReadonlyMap<string, readonly string[]>

function scopeHeaders({ rawHeaders, connectionOptions }: ScopedRequest): ScopeHeaders | undefined {
  const found = new Map<string, readonly string[]>()
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const kind = headerKind(rawHeaders[at] as string)
    if (kind === 'override') return undefined
    if (kind !== 'condition' && kind !== 'secondPath') continue
    const name = (rawHeaders[at] as string).toLowerCase()
    if (connectionOptions?.has(name)) continue
    found.set(name, [...(found.get(name) ?? []), rawHeaders[at + 1] as string])
  }
  return found
}

/** Different values of one header: no path, and nothing that Node's parser lets through. */
const CONFLICT = '\0'

function onlyValue(headers: ScopeHeaders, name: string): string | undefined {
  const values = headers.get(name)
  return values?.every((value) => value === values[0]) === false ? CONFLICT : values?.[0]
}

/** To an upstream that joins repeated lines, `*, *` is not `*`. */
function isOnce(headers: ScopeHeaders, name: string): boolean {
  return headers.get(name)?.length === 1
}
