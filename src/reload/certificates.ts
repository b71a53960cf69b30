/**
 * Loads the certificates of the data listener and of upstreams from PEM files (RFC 7468).
 * The files of one set become active together: the key is that of the first certificate.
 * Problems name the setting and the file, and never quote the file.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext } from 'node:tls'
import { fileErrorCode, readRegularFile } from './files.ts'
import type { Loaded } from './loaded.ts'

/** One file, and the setting that names it: `listen.tls.certFile`. */
interface NamedFile {
  readonly setting: string
  readonly path: string
}

/** Files that become active together. */
export interface CertificateSet {
  /** `listener`, or `upstream:` and a prefix; the label `certificate` of metrics. */
  readonly name: string
  /** The chain that the sidecar presents, its own certificate first. */
  readonly cert?: NamedFile
  readonly key?: NamedFile
  /** The authorities that the peer's certificate must be signed by. */
  readonly ca?: NamedFile
}

interface FileSettings {
  readonly certFile?: string | undefined
  readonly keyFile?: string | undefined
}

/** The settings that name certificate files. */
export interface CertificateSettings {
  readonly tls?: (FileSettings & { readonly clientCaFile?: string | undefined }) | undefined
  readonly upstreams: readonly (FileSettings & {
    readonly prefix: string
    readonly caFile?: string | undefined
  })[]
}

/** What the files of a set hold, for `setSecureContext` and `createSecureContext`. */
export type CertificateMaterial = { readonly [Part in 'cert' | 'key' | 'ca']?: Buffer }

export interface Certificates {
  readonly material: CertificateMaterial
  readonly context: SecureContext
  /** When the first certificate of the chain expires, in epoch milliseconds. */
  readonly expiresAt?: number
}

/** The name of the data listener's set. */
export const LISTENER = 'listener'

/** The name of an upstream's set. */
export const upstreamName = (prefix: string) => `upstream:${prefix}`

/** The sets that name a file at all: the listener's first, then the upstreams' in their order. */
export function certificateSets({ tls, upstreams }: CertificateSettings): CertificateSet[] {
  const sets = [
    createSet(LISTENER, 'listen.tls', 'clientCaFile', { ...tls, caFile: tls?.clientCaFile }),
    ...upstreams.map((upstream, index) =>
      createSet(upstreamName(upstream.prefix), `upstreams[${index}]`, 'caFile', upstream),
    ),
  ]
  return sets.filter(({ cert, key, ca }) => cert ?? key ?? ca)
}

function createSet(
  name: string,
  group: string,
  caSetting: string,
  { certFile, keyFile, caFile }: FileSettings & { readonly caFile?: string | undefined },
): CertificateSet {
  return {
    name,
    ...(certFile !== undefined && { cert: { setting: `${group}.certFile`, path: certFile } }),
    ...(keyFile !== undefined && { key: { setting: `${group}.keyFile`, path: keyFile } }),
    ...(caFile !== undefined && { ca: { setting: `${group}.${caSetting}`, path: caFile } }),
  }
}

/** A bundle of all public authorities has a fifth of this. */
const MAX_BYTES = 1_048_576

/**
 * Loads a set and checks that it can be used. Never rejects.
 *
 * @param now - epoch milliseconds, for warnings about expiry
 */
export async function loadCertificates(set: CertificateSet, now: number): Promise<Loaded<Certificates>> {
  const problems: string[] = []
  const warnings: string[] = []
  const report = ({ setting, path }: NamedFile, message: string) =>
    void problems.push(`${setting}: ${path}: ${message}`)

  /** Reads and parses one file; undefined when it is not named or not usable. */
  async function read<T>(file: NamedFile | undefined, parse: (pem: string) => T) {
    if (file === undefined) return undefined
    const found = await readRegularFile(file.path, MAX_BYTES)
    if (!found.ok) return report(file, found.problem)
    try {
      return { ...file, ...found, parsed: parse(found.bytes.toString('latin1')) }
    } catch (error) {
      // OpenSSL's own messages may quote the file.
      return report(file, error instanceof PemProblem ? error.message : 'cannot be read')
    }
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
    const file = set.cert ?? set.key ?? set.ca
    if (file !== undefined) report(file, `cannot be used for TLS: ${fileErrorCode(error)}`)
    return { ok: false, problems }
  }
  if (cert) warnings.push(...chainWarnings(cert.parsed, now).map((warning) => `${cert.path}: ${warning}`))
  if (ca?.parsed.every(({ validTo }) => Date.parse(validTo) <= now)) {
    warnings.push(`${ca.path}: every authority in it has expired`)
  }
  if (key && (key.mode & 0o004) !== 0) {
    warnings.push(`${key.path}: a private key that everyone on this machine can read`)
  }
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
