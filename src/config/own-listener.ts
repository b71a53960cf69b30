/** Whether the URL of an upstream leads to a listener of the sidecar, which would forward to itself. */
import { hostname, networkInterfaces } from 'node:os'
import ipaddr from 'ipaddr.js'

interface Listener {
  readonly host: string
  readonly port: number
}

/** The system chooses the port of a listener whose setting is 0, so no URL can name it. */
export function isOwnListener(upstreamUrl: string, listener: Listener): boolean {
  if (upstreamUrl.startsWith('unix:')) {
    return false
  }
  const upstream = new URL(upstreamUrl)
  const defaultPort = upstream.protocol === 'https:' ? 443 : 80
  if (Number(upstream.port || defaultPort) !== listener.port) {
    return false
  }
  const upstreamAddresses = addressesOf(upstream.hostname)
  const listenAddresses = addressesOf(listener.host)
  if (listenAddresses.some(isUnspecified)) {
    return upstreamAddresses.some(isOfThisMachine)
  }
  return upstreamAddresses.some((address) => {
    // The system connects to the loopback address in place of an unspecified one.
    const reached = isUnspecified(address) ? ['127.0.0.1', '::1'] : [address]
    return reached.some((each) => listenAddresses.includes(each))
  })
}

/** The addresses that a host surely has, without a lookup. A name of unknown addresses stands for itself. */
function addressesOf(host: string): string[] {
  const withoutBrackets = host.replace(/^\[|\]$/g, '')
  const name = withoutBrackets.replace(/\.$/, '').toLowerCase() // a name may end with a dot
  if (name === 'localhost' || name.endsWith('.localhost')) {
    return ['127.0.0.1', '::1']
  }
  return [ipaddr.isValid(name) ? ipaddr.process(name).toString() : name]
}

const isUnspecified = (address: string) => address === '0.0.0.0' || address === '::'

function isOfThisMachine(address: string): boolean {
  if (!ipaddr.isValid(address)) {
    return address === hostname().toLowerCase()
  }
  if (isUnspecified(address) || ipaddr.parse(address).range() === 'loopback') {
    return true
  }
  const interfaces = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  return interfaces.some((each) => ipaddr.process(each.address).toString() === address)
}
