/** What clients and operators ask of a sidecar, over the wire. */
import type { Login } from '../../src/credentials/store.ts'

/** One sidecar, as seen from outside. */
export interface SidecarClient {
  /** Asks for the time a token has left: `ok`, or the code of the refusal. */
  check(token: string): Promise<string>
  /** Sends a request for the upstream; gives the status. */
  forward(token: string): Promise<number>
  /** Logs in: the token, or the status and code of the refusal. */
  login(login: Login): Promise<string>
  /** The status of `/readyz`, and what it says. */
  ready(): Promise<{ readonly status: number; readonly checks: readonly Record<string, unknown>[] }>
  /** The kids that `/.well-known/jwks.json` shows. */
  kids(): Promise<readonly string[]>
}

/** Asks over connections that are kept. */
export function sidecarClient(ports: { readonly port: number; readonly adminPort: number }): SidecarClient {
  const data = `http://127.0.0.1:${ports.port}`
  const admin = `http://127.0.0.1:${ports.adminPort}`
  const bearing = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })
  return {
    async check(token) {
      const response = await fetch(`${data}/v2/auth/token`, bearing(token))
      const { code } = await objectOf(response)
      return response.status === 200 ? 'ok' : String(code)
    },
    async forward(token) {
      const response = await fetch(`${data}/object`, bearing(token))
      await response.arrayBuffer()
      return response.status
    },
    async login(login) {
      const headers = { 'content-type': 'application/json' }
      const body = JSON.stringify(login)
      const response = await fetch(`${data}/v2/auth/token`, { method: 'POST', headers, body })
      const { code, token } = await objectOf(response)
      return response.status === 200 ? String(token) : `${response.status} ${code}`
    },
    async ready() {
      const response = await fetch(`${admin}/readyz`)
      const { checks } = await objectOf(response)
      return { status: response.status, checks: Array.isArray(checks) ? checks : [] }
    },
    async kids() {
      const { keys } = await objectOf(await fetch(`${admin}/.well-known/jwks.json`))
      return Array.isArray(keys) ? keys.map(({ kid }) => String(kid)) : []
    },
  }
}

/** The kid in a token's header. */
export function kidOf(token: string): string {
  const [header = ''] = token.split('.')
  return String(JSON.parse(Buffer.from(header, 'base64url').toString()).kid)
}

async function objectOf(response: Response): Promise<Record<string, unknown>> {
  const body: unknown = await response.json()
  if (typeof body !== 'object' || body === null) throw new Error('no JSON object')
  return { ...body }
}
