/**
 * The upstream of the soak run, as its parent sees it: started on one port, killed, paused, restarted there.
 *
 * @module
 */
import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Random } from './random.ts'
import type { Mode } from './soak-upstream.ts'

const LOADER = import.meta.resolve('ts-blank-space/register')
const PROGRAM = fileURLToPath(new URL('./soak-upstream.ts', import.meta.url))

/** An upstream that can be mistreated. */
export interface SoakUpstream {
  readonly port: number
  /** Does something to it and undoes it; returns what, once it is healthy again. */
  mistreat(random: Random): Promise<string>
  stop(): Promise<void>
}

/** Starts the upstream on a free port. */
export async function startSoakUpstream(): Promise<SoakUpstream> {
  let child: ChildProcess | undefined
  let port = 0
  const start = async () => {
    const started = fork(PROGRAM, [String(port)], { execArgv: [`--import=${LOADER}`] })
    child = started
    port = await new Promise<number>((resolve, reject) => {
      started.once('message', (told: { readonly port: number }) => resolve(told.port))
      started.once('exit', () => reject(new Error('the upstream did not start')))
    })
  }
  const kill = async () => {
    const killed = child
    if (killed === undefined || killed.exitCode !== null || killed.signalCode !== null) return
    const gone = new Promise((resolve) => killed.once('exit', resolve))
    killed.kill('SIGKILL')
    await gone
  }
  process.once('exit', () => child?.kill('SIGKILL'))
  const behave = (mode: Mode, ms: number) => async () => {
    child?.send({ mode })
    await sleep(ms)
    child?.send({ mode: 'healthy' satisfies Mode })
  }

  await start()
  return {
    port,
    async mistreat(random) {
      const ms = random.int(300, 2000)
      const [name, act] = random.pick<readonly [string, () => Promise<void>]>([
        [
          'killed and restarted',
          async () => {
            await kill()
            await sleep(ms)
            await start()
          },
        ],
        [
          'paused',
          async () => {
            child?.kill('SIGSTOP')
            await sleep(random.pick([ms, 4000]))
            child?.kill('SIGCONT')
          },
        ],
        ['garbage', behave('garbage', ms)],
        ['partial responses', behave('partial', ms)],
        ['resets', behave('reset', ms)],
        ['silence', behave('silent', ms)],
        ['bodies left unread', behave('unread', ms)],
      ])
      await act()
      return name
    },
    stop: kill,
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
