/**
 * Loads certificates of listeners, upstreams, issuers and the feed from PEM files (RFC 7468).
 * No function rejects. The files of one set become active together, so the key is always
 * that of the first certificate. Problems quote no file.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext, type SecureContextOptions } from 'node:tls'
import type { Logger } from '../base/log.ts'
import { failed, type Loaded, loaded, notLoaded, ok, type Result } from '../base/result.ts'
import { type Config, keySetsOf, type Problem, problemsAt } from '../config/config.ts'
import { errorCode, readRegularFile } from '../files/files.ts'
import { openPolledFiles } from '../reload/polled-files.ts'
import type { Reloadable, ReloadResult } from '../reload/reloadable.ts'
import { LISTENER_OPTIONS } from './listener-tls.ts'

/**
 * Also the label `certificate` of metrics. An issuer is named by its setting, such as `trustedIssuers[0]`.
 */
export type CertificateName = 'listener' | 'admin' | 'feed' | `issuer:${string}` | `upstream:${string}`

export const upstreamSetName = (prefix: string) => `upstream:${prefix}` as const
export const FEED_SET = 'feed'
export const issuerSetName = (setting: string) => `issuer:${setting}` as const

const FILE_SETTINGS = ['certFile', 'keyFile', 'caFile', 'clientCaFile'] as const
type FileSetting = (typeof FILE_SETTINGS)[number]

/**
 * The PEM files of a group of settings.
 * `certFile` has the chain that the sidecar presents, its own certificate first.
 * One of the CAs in `caFile` or `clientCaFile` must have signed the certificate of the peer.
 */
export type CertificateFiles = { readonly name: CertificateName; readonly setting: string } & {
  readonly [Name in FileSetting]?: string | undefined
}

export interface CertificateSet {
  readonly options: SecureContextOptions
  readonly context: SecureContext
  /** The end of the first certificate of the chain, in epoch seconds. */
  readonly endsAtSeconds?: number
}

export type CertificateSets = ReadonlyMap<CertificateName, Reloadable<CertificateSet>>

export function certificateFiles(config: Config): CertificateFiles[] {
  const { listen, admin, upstreams, credentials } = config
  const all: CertificateFiles[] = [
    { name: 'listener', setting: 'listen.tls', ...listen.tls },
    { name: 'admin', setting: 'admin.tls', ...admin.tls },
    ...upstreams.map((upstream, index) => {
      return { ...upstream, name: upstreamSetName(upstream.prefix), setting: `upstreams[${index}]` }
    }),
    { name: FEED_SET, setting: 'credentials.feed', caFile: credentials.feed?.caFile },
    ...keySetsOf(config).map(({ setting, caFile }) => ({ name: issuerSetName(setting), setting, caFile })),
  ]
  return all.filter((files) => pathsOf(files).length > 0)
}

const pathsOf = (files: CertificateFiles) => FILE_SETTINGS.flatMap((name) => files[name] ?? [])

/**
 * Returns a function that each new connection calls for its context. Undefined if the settings name no file.
 */
export const activeContextOf = (set?: Reloadable<CertificateSet>) => set && (() => set.current().context)

export const openCertificateSet = (
  files: CertificateFiles,
  log: Pick<Logger, 'info' | 'warn' | 'error'>,
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

/** A file that could be parsed. */
interface TlsFile<T> {
  readonly name: FileSetting
  readonly bytes: Buffer
  readonly warnings: readonly string[]
  readonly parsed: T
}

interface TlsFiles {
  readonly cert: TlsFile<readonly X509Certificate[]> | undefined
  readonly key: TlsFile<KeyObject> | undefined
  readonly ca: TlsFile<readonly X509Certificate[]> | undefined
}

/** Checks that the files can be used together. @param nowMs - for warnings about expiry */
export async function loadCertificateSet(
  files: CertificateFiles,
  nowMs: number,
): Promise<Loaded<CertificateSet, Problem>> {
  const read = await readTlsFiles(files)
  if (!read.ok) {
    return read
  }
  const { cert, key, ca } = read.value
  const options = contextOptions(files, read.value)
  let context: SecureContext
  try {
    context = createSecureContext(options)
  } catch (error) {
    const file = cert ?? key ?? ca
    const message = `cannot be used for TLS: ${errorCode(error)}`
    return notLoaded(file === undefined ? [] : [problemOf(files, file.name, message)])
  }
  const keyWarnings = key?.warnings ?? []
  const [first] = cert?.parsed ?? []
  if (first === undefined) {
    return loaded({ options, context }, keyWarnings)
  }
  const warnings = certificateWarnings(first, nowMs).map((warning) => `${files.certFile}: ${warning}`)
  const endsAtSeconds = Date.parse(first.validTo) / 1000
  return loaded({ options, context, endsAtSeconds }, [...warnings, ...keyWarnings])
}

/** Returns all problems of the files. */
async function readTlsFiles(files: CertificateFiles): Promise<Loaded<TlsFiles, Problem>> {
  const problems: Problem[] = []
  let kind: 'outOfFiles' | undefined
  async function read<T>(name: FileSetting, parse: (pem: string) => Result<T>) {
    const path = files[name]
    if (path === undefined) {
      return undefined
    }
    const found = await readRegularFile(path, MAX_BYTES)
    if (!found.ok) {
      kind ??= found.kind === 'outOfFiles' ? found.kind : undefined
      problems.push(...problemsAt(`${files.setting}.${name}`, found.problems))
      return undefined
    }
    const { bytes } = found.value
    const parsed = parse(bytes.toString('latin1'))
    if (!parsed.ok) {
      problems.push(problemOf(files, name, parsed.error))
      return undefined
    }
    return { name, bytes, warnings: found.warnings, parsed: parsed.value }
  }
  const cert = await read('certFile', parseChain)
  const key = await read('keyFile', parsePrivateKey)
  const ca = (await read('caFile', parseChain)) ?? (await read('clientCaFile', parseChain))
  const [first] = cert?.parsed ?? []
  if (key !== undefined && first?.checkPrivateKey(key.parsed) === false) {
    const message = `must hold the private key of the first certificate in ${files.certFile}`
    problems.push(problemOf(files, 'keyFile', message))
  }
  return problems.length > 0 ? notLoaded(problems, kind) : loaded({ cert, key, ca })
}

function problemOf(files: CertificateFiles, name: FileSetting, message: string): Problem {
  return { path: `${files.setting}.${name}`, message: `${files[name]}: ${message}` }
}

function contextOptions({ name }: CertificateFiles, { cert, key, ca }: TlsFiles): SecureContextOptions {
  const isListener = name === 'listener' || name === 'admin'
  const options: SecureContextOptions = isListener ? { ...LISTENER_OPTIONS } : {}
  if (cert !== undefined) {
    options.cert = cert.bytes
  }
  if (key !== undefined) {
    options.key = key.bytes
  }
  if (ca !== undefined) {
    options.ca = ca.bytes
  }
  return options
}

const BEGIN_CERTIFICATE = '-----BEGIN CERTIFICATE-----'

/** `X509Certificate` parses only the first certificate of a text. Messages of OpenSSL may quote the text. */
function parseChain(pem: string): Result<readonly X509Certificate[]> {
  const [, ...blocks] = pem.split(BEGIN_CERTIFICATE)
  if (blocks.length === 0) {
    return failed(`holds no certificate in PEM (${BEGIN_CERTIFICATE})`)
  }
  const chain: X509Certificate[] = []
  try {
    for (const block of blocks) {
      chain.push(new X509Certificate(BEGIN_CERTIFICATE + block))
    }
    return ok(chain)
  } catch {
    return failed(`certificate ${chain.length + 1} of ${blocks.length} cannot be read`)
  }
}

function parsePrivateKey(pem: string): Result<KeyObject> {
  try {
    return ok(createPrivateKey(pem))
  } catch {
    if (pem.includes('ENCRYPTED')) {
      return failed('is encrypted; must be a private key without a passphrase')
    }
    return failed('holds no private key in PEM (-----BEGIN PRIVATE KEY-----) that can be read')
  }
}

/** Browsers, Go and OpenSSL 3 of distributions refuse shorter keys. The OpenSSL of Node 20 accepts them. */
const MIN_RSA_BITS = 2048

function certificateWarnings({ validTo, publicKey }: X509Certificate, nowMs: number): string[] {
  const warnings: string[] = []
  const { modulusLength = MIN_RSA_BITS } = publicKey.asymmetricKeyDetails ?? {}
  if (modulusLength < MIN_RSA_BITS) {
    warnings.push(`the certificate has an RSA key of ${modulusLength} bits, which clients refuse`)
  }
  if (Date.parse(validTo) <= nowMs) {
    warnings.push(`the certificate expired at ${new Date(validTo).toISOString()}`)
  }
  return warnings
}
