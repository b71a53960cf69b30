/**
 * Whether a peer does what it is measured for: forwards a good request unharmed, and refuses a bad token if it checks
 * tokens. A figure of one that does not is worth nothing.
 *
 * @module
 */
import { request } from 'node:http'
import type { Trust } from '../lab/trust.ts'
import type { Peer } from './peer.ts'
import { SMALL_OBJECT } from './upstreams.ts'

/** Asks a peer in front of the small upstream; throws when an answer is wrong. */
export async function checkPeer({ name, checks }: Peer, trust: Trust, port: number): Promise<void> {
  const good = await get(port, trust.mint(checks ?? 'ES256'))
  if (good.status !== 200 || good.body !== SMALL_OBJECT)
    throw new Error(`${name} does not forward: ${good.status}`)
  if (checks === undefined) return
  const forged = trust
    .mint(checks)
    .replace(/\.[^.]+$/, (signature) => trust.mint(checks).slice(-signature.length))
  const bad = { forged, expired: trust.mint(checks, { expiresIn: -60 }), missing: undefined }
  for (const [kind, token] of Object.entries(bad)) {
    const { status } = await get(port, token)
    if (status < 400 || status > 403) throw new Error(`${name} answers ${status} to a token that is ${kind}`)
  }
}

function get(port: number, token: string | undefined): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
    const options = { host: '127.0.0.1', port, path: '/bucket/object', headers, agent: false }
    const asking = request(options, (res) => {
      let body = ''
      res.setEncoding('latin1').on('data', (text: string) => {
        body += text
      })
      res.on('end', () => resolve({ status: res.statusCode ?? 0, body }))
    })
    asking.on('error', reject).end()
  })
}
