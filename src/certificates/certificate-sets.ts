/**
 * Which certificate files the settings name, and which of them belong together.
 *
 * In: settings. Out: one set for the data listener and one for each upstream that has files. The files of a set are
 * read together and come into force together: a certificate without its key is of no use to anybody.
 *
 * @module
 */

/** One file, and the setting that names it. */
export interface NamedCertificateFile {
  /** `listen.tls.certFile` */
  readonly setting: string
  readonly path: string
}

/** Files that come into force together. */
export interface CertificateSet {
  /** `listener`, or `upstream:` and a prefix; the label `certificate` of metrics. */
  readonly name: string
  /** The chain that we show, ours first. */
  readonly cert?: NamedCertificateFile
  /** The private key of the first certificate of the chain. */
  readonly key?: NamedCertificateFile
  /** The authorities that the other side's certificate must be signed by. */
  readonly ca?: NamedCertificateFile
}

/** The settings that name certificate files. */
export interface CertificateSettings {
  readonly tls?:
    | { readonly certFile: string; readonly keyFile: string; readonly clientCaFile?: string | undefined }
    | undefined
  readonly upstreams: readonly {
    readonly prefix: string
    readonly caFile?: string | undefined
    readonly certFile?: string | undefined
    readonly keyFile?: string | undefined
  }[]
}

/** The set of the data listener. */
export const LISTENER_SET = 'listener'

/** The name of an upstream's set. */
export const upstreamSet = (prefix: string): string => `upstream:${prefix}`

/** The sets that have a file at all. */
export function certificateSets({ tls, upstreams }: CertificateSettings): CertificateSet[] {
  const ofUpstreams = upstreams.map(
    ({ prefix, certFile, keyFile, caFile }, index): CertificateSet => ({
      name: upstreamSet(prefix),
      ...named('cert', `upstreams[${index}].certFile`, certFile),
      ...named('key', `upstreams[${index}].keyFile`, keyFile),
      ...named('ca', `upstreams[${index}].caFile`, caFile),
    }),
  )
  const sets = ofUpstreams.filter((set) => filesOf(set).length > 0)
  if (tls === undefined) return sets
  const listener: CertificateSet = {
    name: LISTENER_SET,
    ...named('cert', 'listen.tls.certFile', tls.certFile),
    ...named('key', 'listen.tls.keyFile', tls.keyFile),
    ...named('ca', 'listen.tls.clientCaFile', tls.clientCaFile),
  }
  return [listener, ...sets]
}

/** The files of a set. */
export function filesOf({ cert, key, ca }: CertificateSet): NamedCertificateFile[] {
  return [cert, key, ca].filter((file) => file !== undefined)
}

function named(member: 'cert' | 'key' | 'ca', setting: string, path: string | undefined) {
  return path === undefined ? {} : { [member]: { setting, path } }
}
