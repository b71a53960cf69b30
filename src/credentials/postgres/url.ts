/**
 * Reads the file that holds the URL of the credentials database.
 *
 * In: a path. Out: what to connect to, or why that cannot be known. The URL holds a password: no problem repeats any
 * part of it, and what names the database to a person is host, port and database, nothing else.
 *
 * @module
 */
import pg from 'pg'
import { readRegularFile } from '../../reload/files.ts'

/** A database to connect to. */
export interface PostgresTarget {
  /** For pg only: holds the password. */
  readonly url: string
  /** `host:port/database`, for people. */
  readonly label: string
  /** The certificate and key files that the URL names. */
  readonly tlsFiles: readonly string[]
}

/** The outcome of reading; problems and warnings are lines for a person. */
export type ReadTarget =
  | { readonly ok: true; readonly target: PostgresTarget; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** No URL comes near this. */
const MOST_URL_BYTES = 65_536
/** Bundles of all public authorities have a fifth of this. */
const MOST_PEM_BYTES = 1_048_576

const EXAMPLE = 'postgres://user:password@host:5432/database'
const SSL_MODES = new Set(['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full'])

/** Reads and checks the file. Never rejects. */
export async function readUrlFile(file: string): Promise<ReadTarget> {
  const read = await readRegularFile(file, MOST_URL_BYTES)
  if (!read.ok) return unusable(file, read.problem)
  const checked = await checkUrl(read.bytes.toString().trim())
  if (typeof checked === 'string') return unusable(file, checked)
  const worldReadable = (read.mode & 0o004) !== 0
  return {
    ok: true,
    target: checked,
    warnings: worldReadable ? [`${file} can be read by every user of this machine`] : [],
  }
}

/**
 * What is wrong with the files that a URL names, if anything is. pg opens them for each connection, waiting, and with it
 * all of the program.
 */
export async function tlsFileProblem({
  tlsFiles,
}: Pick<PostgresTarget, 'tlsFiles'>): Promise<string | undefined> {
  const read = await Promise.all(tlsFiles.map((path) => readRegularFile(path, MOST_PEM_BYTES)))
  const unread = read.find(({ ok }) => !ok)
  return unread === undefined || unread.ok ? undefined : unread.problem
}

/** What the URL names, or what is wrong with it. */
async function checkUrl(text: string): Promise<PostgresTarget | string> {
  if (text === '') return `is empty; it must hold a URL such as ${EXAMPLE}`
  if (!/^postgres(ql)?:\/\/\S+$/.test(text)) return `must hold one URL such as ${EXAMPLE}`
  let url: URL
  try {
    // An empty host means a Unix socket named by the parameter `host`, as pg and libpq have it.
    url = new URL(text.replace('@/', '@socket/'))
  } catch {
    return `holds no valid URL (${PERCENT})`
  }
  // A password with these characters would be cut there, and its rest read as the name of a database.
  if (url.hash !== '' || /[@]/.test(url.pathname + url.search)) return `holds no valid URL (${PERCENT})`
  const mode = url.searchParams.get('sslmode')
  if (mode !== null && !SSL_MODES.has(mode))
    return `has an sslmode that is none of ${[...SSL_MODES].join(', ')}`
  const exact = url.searchParams.get('uselibpqcompat') === 'true' ? text : withPlainSslMode(text)
  const tlsFiles = ['sslrootcert', 'sslcert', 'sslkey'].flatMap((name) =>
    url.searchParams.getAll(name).filter(Boolean),
  )
  const problem = await tlsFileProblem({ tlsFiles })
  if (problem !== undefined) return `names a certificate or key file that ${problem}`
  try {
    const { host, port, database = '' } = new pg.Client({ connectionString: exact })
    return { url: exact, tlsFiles, label: `${host}:${port}/${database}` }
  } catch {
    return `holds a URL that cannot be used (${PERCENT}; sslmode=verify-ca needs sslrootcert)`
  }
}

const PERCENT = 'special characters of the password must be percent-encoded'

/**
 * pg reads `prefer`, `require` and `verify-ca` as `verify-full`, announces on stderr that it will not always do so,
 * and then would verify less. Here they stay what they are.
 */
function withPlainSslMode(text: string): string {
  return text.replace(/([?&]sslmode=)(?:prefer|require|verify-ca)(?=&|$)/, '$1verify-full')
}

function unusable(file: string, what: string): ReadTarget {
  return { ok: false, problems: [`${file}: ${what}`] }
}
