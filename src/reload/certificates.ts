/**
 * Loads the certificates of the data listener and of upstreams from PEM files (RFC 7468).
 * The files of one set become active together: the key is that of the first certificate.
 * Problems name the setting and the file, and never quote the file.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext } from 'node:tls'
import { fileErrorCode, readRegularFile } from './files.ts'
import type { Loaded } from './loaded.ts'

interface Files {
  /** The chain that the sidecar presents, its own certificate first. */
  readonly certFile?: string | undefined
  readonly keyFile?: string | undefined
  /** The authorities that the peer's certificate must be signed by. */
  readonly caFile?: string | undefined
}

/** Files that become active together. */
export interface CertificateSet extends Files {
  /** `listener`, or `upstream:` and a prefix; the label `certificate` of metrics. */
  readonly name: string
  /** The setting that a problem of a file names: `listen.tls.certFile`. */
  readonly settingOf: (file: keyof Files) => string
}

/** The settings that name certificate files. */
export interface CertificateSettings {
  readonly tls?: (Omit<Files, 'caFile'> & { readonly clientCaFile?: string | undefined }) | undefined
  readonly upstreams: readonly (Files & { readonly prefix: string })[]
}

/** The content of the files of a set, for `setSecureContext` and `createSecureContext`. */
export type CertificateMaterial = { readonly [Part in 'cert' | 'key' | 'ca']?: Buffer }

export interface Certificates {
  readonly material: CertificateMaterial
  readonly context: SecureContext
  /** When the first certificate of the chain expires, in epoch milliseconds. */
  readonly expiresAt?: number
}

/** The name of the data listener's set. */
export const LISTENER_CERTIFICATES = 'listener'

/** The name of an upstream's set. */
export const upstreamName = (prefix: string) => `upstream:${prefix}`

/** The sets that name a file: the listener's first, then the upstreams' in their order. */
export function certificateSets({ tls, upstreams }: CertificateSettings): CertificateSet[] {
  const sets: CertificateSet[] = [
    {
      ...tls,
      caFile: tls?.clientCaFile,
      name: LISTENER_CERTIFICATES,
      settingOf: (file) => `listen.tls.${file === 'caFile' ? 'clientCaFile' : file}`,
    },
    ...upstreams.map(({ prefix, certFile, keyFile, caFile }, index) => ({
      ...{ certFile, keyFile, caFile },
      name: upstreamName(prefix),
      settingOf: (file: string) => `upstreams[${index}].${file}`,
    })),
  ]
  return sets.filter((set) => certificateFiles(set).length > 0)
}

/** The paths of a set. */
export const certificateFiles = ({ certFile, keyFile, caFile }: CertificateSet): string[] =>
  [certFile, keyFile, caFile].filter((file) => file !== undefined)

/** Five times a bundle of all public authorities. */
const MAX_BYTES = 1_048_576

/**
 * Loads a set and checks that it can be used. Never rejects.
 *
 * @param now - epoch milliseconds, for warnings about expiry
 */
export async function loadCertificates(set: CertificateSet, now: number): Promise<Loaded<Certificates>> {
  const problems: string[] = []
  const warnings: string[] = []
  const report = (file: keyof Files, message: string) =>
    void problems.push(`${set.settingOf(file)}: ${set[file]}: ${message}`)

  /** Reads and parses one file; undefined when it is not named or not usable. */
  async function read<T>(file: keyof Files, parse: (pem: string) => T) {
    const path = set[file]
    if (path === undefined) return undefined
    const found = await readRegularFile(path, MAX_BYTES)
    if (!found.ok) return report(file, found.problem)
    try {
      return { ...found, path, parsed: parse(found.bytes.toString('latin1')) }
    } catch (error) {
      // OpenSSL's own messages may quote the file.
      return report(file, error instanceof PemProblem ? error.message : 'cannot be read')
    }
  }
  const cert = await read('certFile', parseChain)
  const key = await read('keyFile', parsePrivateKey)
  const ca = await read('caFile', parseChain)
  const [first] = cert?.parsed ?? []
  if (cert && key && first?.checkPrivateKey(key.parsed) === false) {
    if (cert.parsed.some((other) => other.checkPrivateKey(key.parsed))) {
      const order = 'must begin with the certificate of the private key, followed by those that signed it'
      report('certFile', order)
    } else report('keyFile', `must hold the private key of the first certificate in ${cert.path}`)
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
    report(cert ? 'certFile' : key ? 'keyFile' : 'caFile', `cannot be used for TLS: ${fileErrorCode(error)}`)
    return { ok: false, problems }
  }
  if (cert) warnings.push(...chainWarnings(cert.parsed, now).map((warning) => `${cert.path}: ${warning}`))
  if (ca?.parsed.every(({ validTo }) => Date.parse(validTo) <= now)) {
    warnings.push(`${ca.path}: every authority in it has expired`)
  }
  if (key) warnings.push(...key.exposure)
  const value = { material, context, ...(first && { expiresAt: Date.parse(first.validTo) }) }
  return { ok: true, value, warnings }
}

/** Why a PEM file cannot be used, without its text. */
class PemProblem extends Error {}

const BEGIN_CERTIFICATE = '-----BEGIN CERTIFICATE-----'

/** `X509Certificate` parses only the first certificate of a text. */
function parseChain(pem: string): X509Certificate[] {
  const [, ...blocks] = pem.split(BEGIN_CERTIFICATE)
  if (blocks.length === 0) throw new PemProblem(`holds no certificate in PEM (${BEGIN_CERTIFICATE})`)
  return blocks.map((block, index) => {
    try {
      return new X509Certificate(BEGIN_CERTIFICATE + block)
    } catch {
      throw new PemProblem(`certificate ${index + 1} of ${blocks.length} cannot be read`)
    }
  })
}

function parsePrivateKey(pem: string) {
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED/.test(pem)) {
    throw new PemProblem('is encrypted; must be a private key without a passphrase')
  }
  if (!/-----BEGIN (?:\w+ )?PRIVATE KEY-----/.test(pem)) {
    throw new PemProblem('holds no private key in PEM (-----BEGIN PRIVATE KEY-----)')
  }
  try {
    return createPrivateKey(pem)
  } catch {
    throw new PemProblem('holds a private key that cannot be read')
  }
}

function chainWarnings(chain: readonly X509Certificate[], now: number): string[] {
  const warnings: string[] = []
  for (const [index, { validFrom, validTo }] of chain.entries()) {
    const which = index === 0 ? 'the certificate' : `certificate ${index + 1}`
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
