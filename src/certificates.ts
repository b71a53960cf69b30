/**
 * Loads the certificates of both listeners and of upstreams from PEM files (RFC 7468). The files of one set become
 * active together: the key is that of the first certificate. Problems name setting and file, and never quote the file.
 */
import { constants, createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext, type SecureContextOptions } from 'node:tls'
import { type Config, keySetsOf } from './config/config.ts'
import { errorCode, readRegularFile } from './files/files.ts'
import type { Logger } from './log.ts'
import { openPolledFiles } from './reload/polled-files.ts'
import type { Reloadable, ReloadResult } from './reload/reloadable.ts'
import { fileProblem, type Loaded, type Problem } from './values/problem.ts'

/** A file, and the setting that names it, such as `listen.tls.certFile`. */
interface CertificateFile {
  readonly setting: string
  readonly path: string
}

/** The label `certificate` of metrics. `issuer:` is followed by the setting of a JWK Set, `upstream:` by a prefix. */
export type CertificateName = 'listener' | 'admin' | `issuer:${string}` | `upstream:${string}`

export interface CertificateSet {
  readonly name: CertificateName
  /** The chain that the sidecar presents, its own certificate first. */
  readonly cert?: CertificateFile | undefined
  readonly key?: CertificateFile | undefined
  /** The CAs of which one must have signed the peer's certificate. */
  readonly ca?: CertificateFile | undefined
}

export interface Certificates {
  readonly options: SecureContextOptions
  /** Created from `options`. */
  readonly context: SecureContext
  /** When the first certificate of the chain expires, in epoch seconds. */
  readonly endsAtSeconds?: number
}

type CertificateSettings = { readonly [Name in 'certFile' | 'keyFile' | 'caFile']?: string | undefined }

/** The sets that name a file. */
export function certificateSets(config: Config): CertificateSet[] {
  const named = (setting: string, path: string | undefined) =>
    path === undefined ? undefined : { setting, path }
  const setOf = (name: CertificateName, setting: string, group: CertificateSettings = {}) => ({
    name,
    cert: named(`${setting}.certFile`, group.certFile),
    key: named(`${setting}.keyFile`, group.keyFile),
    ca: named(`${setting}.caFile`, group.caFile),
  })
  const { listen, admin, upstreams } = config
  const sets: CertificateSet[] = [
    {
      ...setOf('listener', 'listen.tls', listen.tls),
      ca: named('listen.tls.clientCaFile', listen.tls?.clientCaFile),
    },
    setOf('admin', 'admin.tls', admin.tls),
    ...upstreams.map((upstream, index) =>
      setOf(`upstream:${upstream.prefix}`, `upstreams[${index}]`, upstream),
    ),
    ...keySetsOf(config).map(({ setting, caFile }) => setOf(`issuer:${setting}`, setting, { caFile })),
  ]
  return sets.filter((set) => certificatePaths(set).length > 0)
}

export const certificatePaths = ({ cert, key, ca }: CertificateSet): string[] =>
  [cert, key, ca].flatMap((file) => file?.path ?? [])

/** The active certificates of each set. Listeners subscribe to theirs. */
export type CertificateMap = ReadonlyMap<CertificateName, Reloadable<Certificates>>

/** Undefined where the settings name no file. */
export function secureContextOf(
  certificates: CertificateMap,
  name: CertificateName,
): (() => SecureContext) | undefined {
  const set = certificates.get(name)
  return set && (() => set.current().context)
}

/** Loads a set; its files are polled from `start` on. Never rejects. `now`: epoch milliseconds. */
export const openCertificates = (
  set: CertificateSet,
  log: Logger,
  now: () => number,
  onReload: (result: ReloadResult) => void,
) =>
  openPolledFiles<Certificates>({
    subject: 'certificates',
    paths: certificatePaths(set),
    load: () => loadCertificates(set, now()),
    onReload,
    log,
  })

/** The protocols of both listeners, as TLS negotiates them (RFC 7301). */
export const ALPN_PROTOCOLS = ['http/1.1', 'http/1.0']

/** For both listeners. */
const LISTENER_OPTIONS: SecureContextOptions = {
  minVersion: 'TLSv1.2', // RFC 8996
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION, // a client could ask for one expensive handshake after another
}

/** Five times the size of a bundle of all public CAs. */
const MAX_BYTES = 1_048_576

/** Checks that a set can be used. Never rejects. @param now - epoch milliseconds, for warnings about expiry */
export async function loadCertificates(
  set: CertificateSet,
  now: number,
): Promise<Loaded<Certificates, Problem>> {
  const problems: Problem[] = []
  const report = ({ setting, path }: CertificateFile, message: string) =>
    void problems.push(fileProblem(setting, `${path}: ${message}`))

  async function read<T extends object>(
    file: CertificateFile | undefined,
    parse: (pem: string) => T | string,
  ) {
    if (file === undefined) return undefined
    const found = await readRegularFile(file.path, MAX_BYTES)
    if (!found.ok)
      return void problems.push(...found.problems.map((problem) => fileProblem(file.setting, problem)))
    const parsed = parse(found.bytes.toString('latin1'))
    return typeof parsed === 'string' ? report(file, parsed) : { ...file, ...found, parsed }
  }
  const cert = await read(set.cert, parseChain)
  const key = await read(set.key, parsePrivateKey)
  const ca = await read(set.ca, parseChain)
  const [first] = cert?.parsed ?? []
  if (cert && key && first?.checkPrivateKey(key.parsed) === false) {
    report(key, `must hold the private key of the first certificate in ${cert.path}`)
  }
  if (problems.length > 0) return { ok: false, problems }

  const options: SecureContextOptions = {
    ...((set.name === 'listener' || set.name === 'admin') && LISTENER_OPTIONS),
    ...(cert && { cert: cert.bytes }),
    ...(key && { key: key.bytes }),
    ...(ca && { ca: ca.bytes }),
  }
  let context: SecureContext
  try {
    context = createSecureContext(options)
  } catch (error) {
    const file = cert ?? key ?? ca
    if (file) report(file, `cannot be used for TLS: ${errorCode(error)}`)
    return { ok: false, problems }
  }
  const warnings = [
    ...(first ? certificateWarnings(first, now).map((warning) => `${cert?.path}: ${warning}`) : []),
    ...(key?.permissionWarnings ?? []),
  ]
  const value = { options, context, ...(first && { endsAtSeconds: Date.parse(first.validTo) / 1000 }) }
  return { ok: true, value, warnings }
}

const BEGIN_CERTIFICATE = '-----BEGIN CERTIFICATE-----'

/** The chain, or the problem. `X509Certificate` parses only the first of a text; OpenSSL's messages may quote it. */
function parseChain(pem: string): X509Certificate[] | string {
  const [, ...blocks] = pem.split(BEGIN_CERTIFICATE)
  if (blocks.length === 0) return `holds no certificate in PEM (${BEGIN_CERTIFICATE})`
  const chain: X509Certificate[] = []
  try {
    for (const block of blocks) chain.push(new X509Certificate(BEGIN_CERTIFICATE + block))
    return chain
  } catch {
    return `certificate ${chain.length + 1} of ${blocks.length} cannot be read`
  }
}

function parsePrivateKey(pem: string): KeyObject | string {
  try {
    return createPrivateKey(pem)
  } catch {
    if (pem.includes('ENCRYPTED')) return 'is encrypted; must be a private key without a passphrase'
    return 'holds no private key in PEM (-----BEGIN PRIVATE KEY-----) that can be read'
  }
}

/** OpenSSL 3 of the distributions, browsers and Go refuse shorter keys; the OpenSSL of Node 20 does not. */
const MIN_RSA_BITS = 2048

function certificateWarnings({ validTo, publicKey }: X509Certificate, now: number): string[] {
  const warnings: string[] = []
  const { modulusLength = MIN_RSA_BITS } = publicKey.asymmetricKeyDetails ?? {}
  if (modulusLength < MIN_RSA_BITS)
    warnings.push(`the certificate has an RSA key of ${modulusLength} bits, which clients refuse`)
  if (Date.parse(validTo) <= now)
    warnings.push(`the certificate expired at ${new Date(validTo).toISOString()}`)
  return warnings
}
