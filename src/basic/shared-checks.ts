/**
 * Checks a login once for all requests that present it at the same time,
 * such as those that a browser sends side by side.
 */
import type { LoginClient } from '../endpoints/login-service.ts'

interface RunningCheck<T> {
  readonly clients: LoginClient[]
  readonly result: Promise<T>
}

export class SharedChecks<T> {
  readonly #running = new Map<string, RunningCheck<T>>()

  /**
   * Joins the running check of this key, or starts one. Settles as the check does.
   * @param check - called with a client that stands for all that join: it is `destroyed` once all of them are
   */
  run(key: string, client: LoginClient, check: (client: LoginClient) => Promise<T>): Promise<T> {
    const running = this.#running.get(key)
    if (running !== undefined) {
      running.clients.push(client)
      return running.result
    }
    const clients = [client]
    const allClients: LoginClient = {
      req: client.req,
      get destroyed() {
        return clients.every(({ destroyed }) => destroyed)
      },
    }
    const result = check(allClients).finally(() => this.#running.delete(key))
    this.#running.set(key, { clients, result })
    return result
  }
}
