/**
 * Connects to the database whose URL a file holds. Every wait is bounded.
 * The URL holds a password: no problem repeats any part of it, and labels name host, port and database alone.
 */
import { Socket } from 'node:net'
import pg from 'pg'
import { readRegularFile } from '../../reload/files.ts'
import type { Loaded } from '../../reload/loaded.ts'

export interface PostgresTarget {
  /** For pg alone: holds the password. */
  readonly url: string
  /** `host:port/database`. */
  readonly label: string
}

const MAX_URL_BYTES = 65_536
const MAX_PEM_BYTES = 1_048_576
const CONNECT_MS = 2000
const EXAMPLE = 'postgres://user:password@host:5432/database'
const PERCENT = 'special characters of the password must be percent-encoded'
const SSL_MODES = new Set(['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full'])

/** Reads and checks the URL file. Never rejects. */
export async function readUrlFile(file: string): Promise<Loaded<PostgresTarget>> {
  const read = await readRegularFile(file, MAX_URL_BYTES)
  if (!read.ok) return { ok: false, problems: [`${file}: ${read.problem}`] }
  const target = await parseUrl(read.bytes.toString().trim())
  if (typeof target === 'string') return { ok: false, problems: [`${file}: ${target}`] }
  const worldReadable = (read.mode & 0o004) !== 0
  const warnings = worldReadable ? [`${file} can be read by every user of this machine`] : []
  return { ok: true, value: target, warnings }
}

/** The target, or the problem. */
async function parseUrl(text: string): Promise<PostgresTarget | string> {
  if (text === '') return `is empty; it must hold a URL such as ${EXAMPLE}`
  if (!/^postgres(ql)?:\/\/\S+$/.test(text)) return `must hold one URL such as ${EXAMPLE}`
  // An empty host means a Unix socket named by the parameter `host`, as in libpq.
  const parseable = text.replace('@/', '@socket/')
  const url = URL.canParse(parseable) ? new URL(parseable) : undefined
  // A password with these characters ends there, and its rest would be taken for the name of a database.
  if (url === undefined || url.hash !== '' || `${url.pathname}${url.search}`.includes('@')) {
    return `holds no valid URL (${PERCENT})`
  }
  const mode = url.searchParams.get('sslmode')
  if (mode !== null && !SSL_MODES.has(mode)) {
    return `has an sslmode that is none of ${[...SSL_MODES].join(', ')}`
  }
  // pg reads these files synchronously: a FIFO in their place would block the process.
  for (const path of ['sslrootcert', 'sslcert', 'sslkey'].flatMap((name) => url.searchParams.getAll(name))) {
    const read = path === '' ? undefined : await readRegularFile(path, MAX_PEM_BYTES)
    if (read?.ok === false) return `names a certificate or key file that ${read.problem}`
  }
  // pg treats these three modes as `verify-full`, and warns on stderr that this will change.
  const isExact = url.searchParams.get('uselibpqcompat') === 'true'
  const verifying = text.replace(/([?&]sslmode=)(?:prefer|require|verify-ca)(?=&|$)/, '$1verify-full')
  const connectionString = isExact ? text : verifying
  try {
    const { host, port, database = '' } = new pg.Client({ connectionString })
    return { url: connectionString, label: `${host}:${port}/${database}` }
  } catch {
    return `holds a URL that cannot be used (${PERCENT}; sslmode=verify-ca needs sslrootcert)`
  }
}

export interface Connection {
  readonly client: pg.Client
  /** Closes the connection without waiting for the server; a query in progress rejects. */
  close(): void
}

/** Connects; each query rejects after `queryMs`. */
export async function connect({ url }: PostgresTarget, queryMs: number): Promise<Connection> {
  const socket = new Socket()
  const client = new pg.Client({
    connectionString: url,
    fallback_application_name: 'storage-auth-sidecar',
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: queryMs,
    stream: () => socket,
  })
  // Without a listener the event ends the process; the next query rejects anyway.
  client.on('error', () => {})
  const close = () => {
    client.end().catch(() => {})
    socket.destroySoon() // a server that hangs never answers the goodbye
  }
  try {
    await client.connect()
  } catch (cause) {
    close()
    throw cause
  }
  return { client, close }
}
