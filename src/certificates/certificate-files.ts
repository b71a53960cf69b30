/**
 * Reads the certificate files of one set, and says what is wrong with them.
 *
 * In: PEM files (RFC 7468). Out: what TLS can be spoken with, or every problem at once, each with its setting and file
 * and never with what the file holds. What was loaded belongs together: the key is that of the first certificate.
 *
 * @module
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext } from 'node:tls'
import { fileProblem, type Problem } from '../config/problem.ts'
import { fileErrorReason, readRegularFile } from '../reload/files.ts'
import type { Loaded } from '../reload/loaded.ts'
import { type CertificateSet, filesOf, type NamedCertificateFile } from './certificate-sets.ts'

/** What the files of a set hold, as Node's TLS takes it. */
export interface CertificateMaterial {
  readonly cert?: Buffer
  readonly key?: Buffer
  readonly ca?: Buffer
}

/** Certificates that can be used. */
export interface Certificates {
  readonly material: CertificateMaterial
  readonly context: SecureContext
  /** When the certificate that we show expires, in epoch milliseconds; absent where we show none. */
  readonly expiresAt?: number
}

/** The outcome of loading a set. Lines for a person, free of secrets. */
export type LoadedCertificates = Loaded<Certificates, Problem>

/** Bundles of all public authorities have a fifth of this. */
const MOST_BYTES = 1_048_576

/**
 * Loads a set. Never rejects.
 *
 * @param now - epoch milliseconds
 */
export async function loadCertificates(set: CertificateSet, now: number): Promise<LoadedCertificates> {
  const problems: Problem[] = []
  const warnings: string[] = []
  const report = ({ setting, path }: NamedCertificateFile, message: string) =>
    void problems.push(fileProblem(setting, `${path}: ${message}`))

  const read = async (file: NamedCertificateFile | undefined): Promise<PemFile | undefined> => {
    if (file === undefined) return undefined
    const found = await readRegularFile(file.path, MOST_BYTES)
    if (found.ok) return { ...found, file }
    report(file, found.problem)
    return undefined
  }
  const [cert, key, ca] = await Promise.all([read(set.cert), read(set.key), read(set.ca)])

  const certificates = (pem: PemFile | undefined): X509Certificate[] => {
    if (pem === undefined) return []
    const parsed = parseCertificates(pem.bytes)
    if (typeof parsed !== 'string') return parsed
    report(pem.file, parsed)
    return []
  }
  const chain = certificates(cert)
  const authorities = certificates(ca)
  const privateKey = key && parseKey(key.bytes)
  if (key !== undefined && typeof privateKey === 'string') report(key.file, privateKey)
  const [first] = chain
  if (cert && key && first && typeof privateKey === 'object' && !first.checkPrivateKey(privateKey)) {
    if (chain.some((other) => other.checkPrivateKey(privateKey))) {
      report(cert.file, 'wants the certificate of the private key first, and then those that signed it')
    } else report(key.file, `wants the private key of the first certificate in ${cert.file.path}`)
  }
  if (problems.length > 0) return { ok: false, problems }

  const material = {
    ...(cert && { cert: cert.bytes }),
    ...(key && { key: key.bytes }),
    ...(ca && { ca: ca.bytes }),
  }
  let context: SecureContext
  try {
    context = createSecureContext(material)
  } catch (error) {
    const [file] = filesOf(set)
    // The cause may quote a file, so only its name is passed on.
    if (file !== undefined) report(file, `cannot be used for TLS: ${fileErrorReason(error)}`)
    return { ok: false, problems }
  }

  if (cert && first) warnings.push(...chainWarnings(chain, now).map((text) => `${cert.file.path}: ${text}`))
  if (ca && authorities.every(({ validTo }) => Date.parse(validTo) <= now)) {
    warnings.push(`${ca.file.path}: every authority in it has expired`)
  }
  if (key && (key.mode & 0o004) !== 0) {
    warnings.push(`${key.file.path}: a private key that everyone on this machine can read`)
  }
  const value = { material, context, ...(first && { expiresAt: Date.parse(first.validTo) }) }
  return { ok: true, value, warnings }
}

interface PemFile {
  readonly file: NamedCertificateFile
  readonly bytes: Buffer
  readonly mode: number
}

const BEGIN = '-----BEGIN CERTIFICATE-----'
const END = '-----END CERTIFICATE-----'

/** The certificates in the order in which they stand. A text is what is wrong. */
function parseCertificates(bytes: Buffer): X509Certificate[] | string {
  const [, ...blocks] = bytes.toString('latin1').split(BEGIN)
  if (blocks.length === 0) return `holds no certificate in PEM (${BEGIN})`
  const certificates: X509Certificate[] = []
  for (const [index, block] of blocks.entries()) {
    const [base64 = '', rest] = block.split(END, 2)
    const certificate = rest === undefined ? undefined : parseCertificate(`${BEGIN}${base64}${END}\n`)
    if (certificate === undefined) return `certificate ${index + 1} of ${blocks.length} cannot be read`
    certificates.push(certificate)
  }
  return certificates
}

function parseCertificate(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem)
  } catch {
    return undefined
  }
}

/** The private key. A text is what is wrong; it never quotes the file. */
function parseKey(bytes: Buffer): KeyObject | string {
  const text = bytes.toString('latin1')
  if (text.includes('-----BEGIN ENCRYPTED PRIVATE KEY-----') || text.includes('Proc-Type: 4,ENCRYPTED')) {
    return 'is encrypted; wants a private key without a passphrase'
  }
  if (!/-----BEGIN (?:\w+ )?PRIVATE KEY-----/.test(text))
    return 'holds no private key in PEM (-----BEGIN PRIVATE KEY-----)'
  try {
    return createPrivateKey(bytes)
  } catch {
    return 'holds a private key that cannot be read'
  }
}

/** What works but should be mended. */
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
