/**
 * The request target, as the upstream will get it.
 *
 * @module
 */

/**
 * The target in origin form, or undefined when it has none. The absolute form is taken when it names the very
 * authority of `Host` (RFC 9112, section 3.2.2); `*` and the authority form are not.
 */
export function originForm(url: string, host: string | undefined): string | undefined {
  let target = url
  if (url.charCodeAt(0) !== 0x2f) {
    const scheme = /^https?:\/\//i.exec(url)
    if (scheme === null || host === undefined) return undefined
    const rest = url.slice(scheme[0].length)
    if (rest.slice(0, host.length).toLowerCase() !== host.toLowerCase()) return undefined
    target = rest.slice(host.length)
    if (target === '' || target.charCodeAt(0) === 0x3f) target = `/${target}`
    else if (target.charCodeAt(0) !== 0x2f) return undefined
  }
  for (let at = 0; at < target.length; at++) {
    const code = target.charCodeAt(at)
    if (code <= 0x20 || code === 0x23 || code === 0x7f) return undefined
  }
  return target
}
