/**
 * One upstream: the prefix it serves, where it is, and how TLS to it is checked.
 *
 * An address that says more than the sidecar would use is refused: a path, query or user name in it would be
 * dropped without a word, as the request target is forwarded untouched.
 *
 * @module
 */
import { z } from 'zod'
import { filePath, pathPrefix } from './values.ts'

const WANTS_URL = 'must be http://host:port, https://host:port or unix:/absolute/path'

const WANTS_UPSTREAM = 'must be a map such as { prefix: /, url: http://127.0.0.1:9000 }'

/** Makes a check run beside other mistakes, so that all are reported at once. */
const EVEN_IF_BROKEN = { when: () => true }

/** `sun_path` of `struct sockaddr_un` on Linux, less its closing NUL. */
const LONGEST_SOCKET_PATH_BYTES = 107

/** The schema of one member of `upstreams`. */
const upstreamSchema = z
  .strictObject(
    {
      prefix: pathPrefix().describe(
        'Paths this upstream serves; the longest matching prefix wins, on segment boundaries.',
      ),
      url: z
        .string({ error: ({ input }) => (input === undefined ? `is missing; ${WANTS_URL}` : WANTS_URL) })
        .superRefine((url, context) => {
          const message = urlProblem(url)
          if (message !== undefined) context.addIssue(message)
        })
        .describe('Where it is: http://host:port, https://host:port or unix:/absolute/path.'),
      caFile: filePath().optional().describe('PEM file of the authorities that sign its certificate.'),
      certFile: filePath().optional().describe('PEM file of the client certificate it is shown.'),
      keyFile: filePath().optional().describe('PEM file of the private key of certFile.'),
    },
    { error: ({ code }) => (code === 'invalid_type' ? WANTS_UPSTREAM : undefined) },
  )
  .superRefine((upstream: unknown, context) => {
    for (const path of ['caFile', 'certFile', 'keyFile']) {
      if (member(upstream, path) === undefined || /^https:/i.test(String(member(upstream, 'url')))) continue
      context.addIssue({ code: 'custom', path: [path], message: 'needs a url that begins with https:' })
    }
    for (const [path, partner] of [
      ['certFile', 'keyFile'],
      ['keyFile', 'certFile'],
    ] as const) {
      if (member(upstream, path) === undefined || member(upstream, partner) !== undefined) continue
      context.addIssue({ code: 'custom', path: [path], message: `needs ${partner} beside it` })
    }
  }, EVEN_IF_BROKEN)

/** The schema of `upstreams`: no two of them serve the same paths. */
export const upstreamsSchema = z
  .array(upstreamSchema, `must be a list; each member ${WANTS_UPSTREAM}`)
  .superRefine((upstreams: unknown, context) => {
    if (!Array.isArray(upstreams)) return
    const seen = new Set<string>()
    for (const [index, upstream] of upstreams.entries()) {
      const prefix = member(upstream, 'prefix')
      if (typeof prefix !== 'string') continue
      const segments = prefix.replace(/\/$/, '') // `/a` and `/a/` end on the same segment boundary
      if (seen.has(segments)) {
        const message = 'serves the same paths as an upstream before it'
        context.addIssue({ code: 'custom', path: [index, 'prefix'], message })
      }
      seen.add(segments)
    }
  }, EVEN_IF_BROKEN)

/** A member of a value that may have any shape; the check runs beside those that find the shape wrong. */
function member(value: unknown, name: string): unknown {
  return value instanceof Object && Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined
}

/** Why a text is no upstream address, or undefined when it is one. */
function urlProblem(url: string): string | undefined {
  if (/[\s\p{Cc}\\]/u.test(url)) return `${WANTS_URL}, without spaces, control characters and backslashes`
  if (url.startsWith('unix:')) return socketProblem(url.slice('unix:'.length))
  const parts = /^https?:\/\/(?<authority>[^/?#]*)(?<rest>.*)$/i.exec(url)?.groups
  if (parts === undefined) return WANTS_URL
  const { authority = '', rest = '' } = parts
  if (authority.includes('@')) return `${WANTS_URL}, without a user name or password`
  if (rest.includes('?') || rest.includes('#')) return `${WANTS_URL}, without a query or fragment`
  if (rest !== '' && rest !== '/')
    return `${WANTS_URL}, without a path: the request target is forwarded untouched`
  if (/:0*$/.test(authority)) return `${WANTS_URL}, with a port from 1 to 65535`
  if (!URL.canParse(url)) return WANTS_URL
  // The URL standard allows braces and the like in a host: a template nobody filled in would pass.
  return /^(?:[a-z0-9._-]+|\[.*\])$/.test(new URL(url).hostname) ? undefined : WANTS_URL
}

function socketProblem(path: string): string | undefined {
  if (!/^\/[^/]/.test(path) || path.endsWith('/'))
    return 'must be unix:/absolute/path, with one slash after the colon'
  if (/[?#]/.test(path)) return 'must be unix:/absolute/path, without a query or fragment'
  if (Buffer.byteLength(path) > LONGEST_SOCKET_PATH_BYTES) {
    return `must be unix:/absolute/path of at most ${LONGEST_SOCKET_PATH_BYTES} bytes`
  }
  return undefined
}
