/**
 * The hosts at which the paths of scopes and links name what their authors meant (`scopes.hosts`).
 * Many services choose by `Host`: the same path is another object in another virtual-host bucket.
 * In: the `Host` of a request. Out: whether restricted tokens and links are accepted there.
 */
export class ScopeHosts {
  readonly #names: ReadonlySet<string>
  /** The service does not choose by `Host`. */
  readonly #isAny: boolean

  /** @param hosts - names with or without a port, or `*`. A name without a port stands for any port */
  constructor(hosts: readonly string[]) {
    this.#names = new Set(hosts.map((host) => host.toLowerCase()))
    this.#isAny = this.#names.has('*')
  }

  includes(host: string | undefined): boolean {
    if (this.#isAny) {
      return true
    }
    if (host === undefined) {
      return false
    }
    const authority = host.toLowerCase()
    return this.#names.has(authority) || this.#names.has(withoutPort(authority))
  }

  /**
   * Returns the name to which a link is bound, in lower case without a port.
   * Undefined if links are bound to no host.
   */
  boundName(host: string | undefined): string | undefined {
    return this.#isAny || host === undefined ? undefined : withoutPort(host.toLowerCase())
  }
}

/** An IPv6 address has brackets (RFC 3986, section 3.2.2). */
const withoutPort = (authority: string): string => authority.replace(/:\d*$/, '')
