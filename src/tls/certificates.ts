/**
 * Loads certificates of listeners, upstreams and issuers from PEM files (RFC 7468). Problems quote no file.
 * The files of one set become active together, so that the key is always that of the first certificate.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext, type SecureContextOptions } from 'node:tls'
import { type Config, keySetsOf } from '../config/config.ts'
import { type Problem, problemsAt } from '../config/problems.ts'
import { errorCode, readRegularFile } from '../files/files.ts'
import type { Logger } from '../log.ts'
import { openPolledFiles } from '../reload/polled-files.ts'
import type { Reloadable, ReloadResult } from '../reload/reloadable.ts'
import { failed, type Loaded, loaded, notLoaded, type Result } from '../values/result.ts'
import { LISTENER_OPTIONS } from './listener-tls.ts'

/** The label `certificate` of metrics. After `issuer:` stands a setting, after `upstream:` a prefix. */
export type CertificateName = 'listener' | 'admin' | `issuer:${string}` | `upstream:${string}`

interface NamedFile {
  readonly setting: string
  readonly path: string
}

export interface CertificateFiles {
  readonly name: CertificateName
  /** The chain that the sidecar presents, its own certificate first. */
  readonly cert?: NamedFile | undefined
  readonly key?: NamedFile | undefined
  /** One of these CAs must have signed the certificate of the peer. */
  readonly ca?: NamedFile | undefined
}

export interface CertificateSet {
  readonly options: SecureContextOptions
  readonly context: SecureContext
  /** The end of the first certificate of the chain, in epoch seconds. */
  readonly endsAtSeconds?: number
}

type CertificateSettings = { readonly [Name in 'certFile' | 'keyFile' | 'caFile']?: string | undefined }

export function certificateFiles(config: Config): CertificateFiles[] {
  const named = (setting: string, path: string | undefined) =>
    path === undefined ? undefined : { setting, path }
  const filesOf = (name: CertificateName, setting: string, group: CertificateSettings = {}) => ({
    name,
    cert: named(`${setting}.certFile`, group.certFile),
    key: named(`${setting}.keyFile`, group.keyFile),
    ca: named(`${setting}.caFile`, group.caFile),
  })
  const { listen, admin, upstreams } = config
  const all: CertificateFiles[] = [
    {
      ...filesOf('listener', 'listen.tls', listen.tls),
      ca: named('listen.tls.clientCaFile', listen.tls?.clientCaFile),
    },
    filesOf('admin', 'admin.tls', admin.tls),
    ...upstreams.map((upstream, index) =>
      filesOf(`upstream:${upstream.prefix}`, `upstreams[${index}]`, upstream),
    ),
    ...keySetsOf(config).map(({ setting, caFile }) => filesOf(`issuer:${setting}`, setting, { caFile })),
  ]
  return all.filter((files) => pathsOf(files).length > 0)
}

const pathsOf = ({ cert, key, ca }: CertificateFiles): string[] =>
  [cert, key, ca].flatMap((file) => file?.path ?? [])

/** Returns the context for each new connection. Undefined if the settings name no file. */
export const activeContextOf = (set: Reloadable<CertificateSet> | undefined) =>
  set && (() => set.current().context)

/** Never rejects. */
export const openCertificateSet = (
  files: CertificateFiles,
  log: Logger,
  now: () => number,
  onReload: (result: ReloadResult) => void,
) =>
  openPolledFiles({
    subject: 'certificates',
    paths: pathsOf(files),
    load: () => loadCertificateSet(files, now()),
    onReload,
    log,
  })

const MAX_BYTES = 1_048_576

/** Checks that the files can be used together. Never rejects. @param now - for warnings about expiry */
export async function loadCertificateSet(
  files: CertificateFiles,
  now: number,
): Promise<Loaded<CertificateSet, Problem>> {
  const problems: Problem[] = []
  const report = ({ setting, path }: NamedFile, message: string) =>
    void problems.push({ path: setting, message: `${path}: ${message}` })

  async function read<T>(file: NamedFile | undefined, parse: (pem: string) => Result<T>) {
    if (file === undefined) return undefined
    const found = await readRegularFile(file.path, MAX_BYTES)
    if (!found.ok) return void problems.push(...problemsAt(file.setting, found.problems))
    const parsed = parse(found.value.bytes.toString('latin1'))
    if (!parsed.ok) return report(file, parsed.error)
    return { ...file, bytes: found.value.bytes, warnings: found.warnings, parsed: parsed.value }
  }
  const cert = await read(files.cert, parseChain)
  const key = await read(files.key, parsePrivateKey)
  const ca = await read(files.ca, parseChain)
  const [first] = cert?.parsed ?? []
  if (cert && key && first?.checkPrivateKey(key.parsed) === false) {
    report(key, `must hold the private key of the first certificate in ${cert.path}`)
  }
  if (problems.length > 0) return notLoaded(problems)

  const options: SecureContextOptions = {
    ...((files.name === 'listener' || files.name === 'admin') && LISTENER_OPTIONS),
    ...(cert && { cert: cert.bytes }),
    ...(key && { key: key.bytes }),
    ...(ca && { ca: ca.bytes }),
  }
  try {
    const endsAt = first && { endsAtSeconds: Date.parse(first.validTo) / 1000 }
    const expiry = first ? certificateWarnings(first, now).map((warning) => `${cert?.path}: ${warning}`) : []
    const value = { options, context: createSecureContext(options), ...endsAt }
    return loaded(value, [...expiry, ...(key?.warnings ?? [])])
  } catch (error) {
    const file = cert ?? key ?? ca
    if (file) report(file, `cannot be used for TLS: ${errorCode(error)}`)
    return notLoaded(problems)
  }
}

const BEGIN_CERTIFICATE = '-----BEGIN CERTIFICATE-----'

/** `X509Certificate` parses only the first certificate of a text. Messages of OpenSSL may quote the text. */
function parseChain(pem: string): Result<readonly X509Certificate[]> {
  const [, ...blocks] = pem.split(BEGIN_CERTIFICATE)
  if (blocks.length === 0) return failed(`holds no certificate in PEM (${BEGIN_CERTIFICATE})`)
  const chain: X509Certificate[] = []
  try {
    for (const block of blocks) chain.push(new X509Certificate(BEGIN_CERTIFICATE + block))
    return { ok: true, value: chain }
  } catch {
    return failed(`certificate ${chain.length + 1} of ${blocks.length} cannot be read`)
  }
}

function parsePrivateKey(pem: string): Result<KeyObject> {
  try {
    return { ok: true, value: createPrivateKey(pem) }
  } catch {
    if (pem.includes('ENCRYPTED')) return failed('is encrypted; must be a private key without a passphrase')
    return failed('holds no private key in PEM (-----BEGIN PRIVATE KEY-----) that can be read')
  }
}

/** Browsers, Go and OpenSSL 3 of distributions refuse shorter keys. The OpenSSL of Node 20 accepts them. */
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
