/**
 * Plays a script on a connection: sends its bytes as they are cut, and takes what comes.
 *
 * @module
 */
import { connect } from 'node:net'
import type { Ended } from './client-answers.ts'
import type { Script } from './fuzz-requests.ts'
import type { ClientView } from './trial.ts'

/** How the client knows that it has all it can expect. */
export interface PlayOptions {
  readonly port: number
  readonly script: Script
  /** Whether nothing more is to come on a connection that stays open. */
  readonly isComplete: (received: string, ended: Ended) => boolean
  /** How long anything is waited for, in milliseconds. */
  readonly patienceMs: number
}

/** Plays a script. Rejects only when there is no connection to be had. */
export function play({ port, script, isComplete, patienceMs }: PlayOptions): Promise<ClientView> {
  return new Promise((resolve, reject) => {
    const { bytes, cuts, leave } = script
    let received = ''
    let ended: Ended
    let sent = 0
    let next = 0
    let connected = false
    let leaving = false
    let settled = false
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true })
    socket.setEncoding('latin1')

    const settle = (how: 'done' | 'aborted' | 'gave up') => {
      const aborted = how === 'aborted'
      if (settled) return
      settled = true
      clearTimeout(giveUp)
      if (aborted) socket.resetAndDestroy()
      else socket.destroy()
      resolve({ received, ended, aborted, gaveUp: how === 'gave up' })
    }
    // What the client missed is for the judge to say.
    const giveUp = setTimeout(() => settle('gave up'), patienceMs)
    const look = () => {
      if (ended !== undefined) {
        settle('done')
      } else if (sent === bytes.length && !leaving && isComplete(received, ended)) {
        leaving = true
        if (leave === 'half-close') socket.end()
        else settle('done')
      }
    }
    const send = () => {
      if (settled || ended !== undefined) return
      const to = cuts[next++] ?? bytes.length
      socket.write(bytes.slice(sent, to), 'latin1')
      sent = to
      if (sent === bytes.length) {
        if (leave === 'abort') setTimeout(() => settle('aborted'), script.bytes.length % 5)
        look()
      } else {
        setTimeout(send, next % 2)
      }
    }
    socket.on('connect', () => {
      connected = true
      send()
    })
    socket.on('data', (text: string) => {
      received += text
      look()
    })
    socket.on('end', () => {
      // A reset that comes together with data looks like an end, but leaves no peer behind.
      ended ??= socket.remotePort === undefined && !socket.writableEnded ? 'reset' : 'end'
      look()
    })
    socket.on('error', (error) => {
      if (!connected) {
        settled = true
        clearTimeout(giveUp)
        reject(error)
        return
      }
      // A write to a connection that has been closed says so again: the first word counts.
      ended ??= 'reset'
      look()
    })
    socket.on('close', () => {
      ended ??= 'end'
      look()
    })
  })
}
