/** Sends a GET by Node's client, because its `fetch` has no option for CAs. Follows no redirect. */
import { once } from 'node:events'
import { get as getHttp, type IncomingMessage } from 'node:http'
import { get as getHttps, type RequestOptions } from 'node:https'
import type { ConnectionOptions } from 'node:tls'
import { lookup } from './hosts.ts'

/** `signal` ends the request, or the read of its response. */
export type GetOptions = RequestOptions &
  Pick<ConnectionOptions, 'secureContext'> & { readonly signal: AbortSignal }

/**
 * Resolves with the response once its head has arrived. The caller reads its body, or destroys it.
 * Rejects with the error of the connection, or that of the signal.
 */
export async function get(url: URL, options: GetOptions): Promise<IncomingMessage> {
  const send = url.protocol === 'https:' ? getHttps : getHttp
  const request = send(url, { ...options, lookup })
  request.on('error', () => {}) // `once`, or the read of the response, rejects with the same error
  // A 101 that was not requested ends the request without an event. Only the signal then ends the wait.
  const [response]: IncomingMessage[] = await once(request, 'response', { signal: options.signal })
  if (response === undefined) {
    throw new Error('a response event without a response')
  }
  return response
}
