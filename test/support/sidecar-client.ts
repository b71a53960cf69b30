import type { Login } from '../../src/credentials/credential-checks.ts'

export type SidecarClient = ReturnType<typeof sidecarClient>

/** What clients and operators ask of one sidecar, over connections that are kept. */
export function sidecarClient(ports: { readonly port: number; readonly adminPort: number }) {
  const data = `http://127.0.0.1:${ports.port}`
  const admin = `http://127.0.0.1:${ports.adminPort}`
  const bearing = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })
  return {
    /** Asks for the time a token has left: `ok`, or the code of the refusal. */
    async check(token: string) {
      const response = await fetch(`${data}/v2/auth/token`, bearing(token))
      const { code } = await objectOf(response)
      return response.status === 200 ? 'ok' : String(code)
    },
    /** Sends a request for the upstream; gives the status. */
    async forward(token: string) {
      const response = await fetch(`${data}/object`, bearing(token))
      await response.arrayBuffer()
      return response.status
    },
    /** Logs in: the token, or the status and code of the refusal. */
    async login(login: Login) {
      const headers = { 'content-type': 'application/json' }
      const body = JSON.stringify(login)
      const response = await fetch(`${data}/v2/auth/token`, { method: 'POST', headers, body })
      const { code, token } = await objectOf(response)
      return response.status === 200 ? String(token) : `${response.status} ${code}`
    },
    /** Makes a link: its path and query, and its id. */
    async link(token: string, method: string, target: string) {
      const headers = { ...bearing(token).headers, 'content-type': 'application/json' }
      const body = JSON.stringify({ method, target })
      const response = await fetch(`${data}/v2/auth/links`, { method: 'POST', headers, body })
      const { url, linkId } = await objectOf(response)
      return { url: String(url), linkId: String(linkId) }
    },
    /** The status of `/readyz`, and what it says. */
    async ready(): Promise<{ status: number; checks: readonly Record<string, unknown>[] }> {
      const response = await fetch(`${admin}/readyz`)
      const { checks } = await objectOf(response)
      return { status: response.status, checks: Array.isArray(checks) ? checks : [] }
    },
    /** The kids that `/.well-known/jwks.json` shows. */
    async kids(): Promise<string[]> {
      const { keys } = await objectOf(await fetch(`${admin}/.well-known/jwks.json`))
      return Array.isArray(keys) ? keys.map(({ kid }) => String(kid)) : []
    },
  }
}

async function objectOf(response: Response): Promise<Record<string, unknown>> {
  const body: unknown = await response.json()
  if (typeof body !== 'object' || body === null) {
    throw new Error('no JSON object')
  }
  return { ...body }
}
