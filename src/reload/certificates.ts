/**
 * Loads the certificates of both listeners and of upstreams from PEM files (RFC 7468). The files of one set become
 * active together: the key is that of the first certificate. Problems name setting and file, and never quote the file.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext } from 'node:tls'
import { type Config, keySetsOf } from '../config/config.ts'
import { fileProblem, type Problem } from '../config/problem.ts'
import { errorCode, type Loaded, readRegularFile } from './files.ts'

/** A file, and the setting that names it, such as `listen.tls.certFile`. */
interface CertificateFile {
  readonly setting: string
  readonly path: string
}

export interface CertificateSet {
  /** `listener`, `admin`, `issuer:` and a setting, or `upstream:` and a prefix; the label `certificate` of metrics. */
  readonly name: string
  /** The chain that the sidecar presents, its own certificate first. */
  readonly cert?: CertificateFile | undefined
  readonly key?: CertificateFile | undefined
  /** The CAs of which one must have signed the peer's certificate. */
  readonly ca?: CertificateFile | undefined
}

/** For `setSecureContext` and `createSecureContext`. */
export type CertificateMaterial = { readonly [Part in 'cert' | 'key' | 'ca']?: Buffer }

export interface Certificates {
  readonly material: CertificateMaterial
  readonly context: SecureContext
  /** When the first certificate of the chain expires, in epoch milliseconds. */
  readonly expiresAt?: number
}

export const LISTENER_CERTIFICATES = 'listener'
export const ADMIN_CERTIFICATES = 'admin'
/** `setting`: that of the JWK Set. */
export const issuerName = (setting: string) => `issuer:${setting}`
export const upstreamName = (prefix: string) => `upstream:${prefix}`

/** The sets that name a file. */
export function certificateSets(config: Config): CertificateSet[] {
  const { listen, admin, upstreams } = config
  const named = (setting: string, path: string | undefined) =>
    path === undefined ? undefined : { setting, path }
  const { certFile, keyFile, clientCaFile } = listen.tls ?? {}
  const sets: CertificateSet[] = [
    {
      name: LISTENER_CERTIFICATES,
      cert: named('listen.tls.certFile', certFile),
      key: named('listen.tls.keyFile', keyFile),
      ca: named('listen.tls.clientCaFile', clientCaFile),
    },
    {
      name: ADMIN_CERTIFICATES,
      cert: named('admin.tls.certFile', admin.tls?.certFile),
      key: named('admin.tls.keyFile', admin.tls?.keyFile),
    },
    ...upstreams.map(({ prefix, certFile, keyFile, caFile }, index) => ({
      name: upstreamName(prefix),
      cert: named(`upstreams[${index}].certFile`, certFile),
      key: named(`upstreams[${index}].keyFile`, keyFile),
      ca: named(`upstreams[${index}].caFile`, caFile),
    })),
    ...keySetsOf(config).map(({ setting, caFile }) => ({
      name: issuerName(setting),
      ca: named(`${setting}.caFile`, caFile),
    })),
  ]
  return sets.filter((set) => certificatePaths(set).length > 0)
}

export const certificatePaths = ({ cert, key, ca }: CertificateSet): string[] =>
  [cert, key, ca].flatMap((file) => file?.path ?? [])

/** Five times a bundle of all public CAs. */
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
    if (cert.parsed.some((other) => other.checkPrivateKey(key.parsed))) {
      report(cert, 'must begin with the certificate of the private key, followed by those that signed it')
    } else report(key, `must hold the private key of the first certificate in ${cert.path}`)
  }
  if (problems.length > 0) return { ok: false, problems }

  const material: CertificateMaterial = {
    ...(cert && { cert: cert.bytes }),
    ...(key && { key: key.bytes }),
    ...(ca && { ca: ca.bytes }),
  }
  let context: SecureContext
  try {
    context = createSecureContext(material)
  } catch (error) {
    const file = cert ?? key ?? ca
    if (file) report(file, `cannot be used for TLS: ${errorCode(error)}`)
    return { ok: false, problems }
  }
  const warnings = cert ? chainWarnings(cert.parsed, now).map((warning) => `${cert.path}: ${warning}`) : []
  if (ca?.parsed.every(({ validTo }) => Date.parse(validTo) <= now)) {
    warnings.push(`${ca.path}: every CA certificate in it has expired`)
  }
  if (key) warnings.push(...key.permissionWarnings)
  const value = { material, context, ...(first && { expiresAt: Date.parse(first.validTo) }) }
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
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED/.test(pem)) {
    return 'is encrypted; must be a private key without a passphrase'
  }
  if (!/-----BEGIN (?:\w+ )?PRIVATE KEY-----/.test(pem)) {
    return 'holds no private key in PEM (-----BEGIN PRIVATE KEY-----)'
  }
  try {
    return createPrivateKey(pem)
  } catch {
    return 'holds a private key that cannot be read'
  }
}

/** OpenSSL 3 of the distributions, browsers and Go refuse shorter keys; the OpenSSL of Node 20 does not. */
const MIN_RSA_BITS = 2048

function chainWarnings(chain: readonly X509Certificate[], now: number): string[] {
  const warnings: string[] = []
  for (const [index, { validFrom, validTo, publicKey }] of chain.entries()) {
    const which = index === 0 ? 'the certificate' : `certificate ${index + 1}`
    const { modulusLength = MIN_RSA_BITS } = publicKey.asymmetricKeyDetails ?? {}
    if (modulusLength < MIN_RSA_BITS)
      warnings.push(`${which} has an RSA key of ${modulusLength} bits, which clients refuse`)
    if (Date.parse(validTo) <= now) warnings.push(`${which} expired at ${iso(validTo)}`)
    if (Date.parse(validFrom) > now) warnings.push(`${which} is not valid before ${iso(validFrom)}`)
  }
  // RFC 8446, section 4.4.2: each should certify the one before it; some clients insist.
  const isOrdered = chain.every((certificate, index) => {
    const signer = chain[index + 1]
    return signer === undefined || certificate.checkIssued(signer)
  })
  if (!isOrdered) warnings.push('each certificate should be followed by the one that signed it')
  return warnings
}

const iso = (date: string) => new Date(date).toISOString()
