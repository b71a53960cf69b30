/**
 * A sidecar between scripted clients and a judging upstream.
 *
 * In: scripts. Out: trials with the first invariant that did not hold, each of them alone responsible for what it did,
 * however many are under way at once.
 *
 * @module
 */
import { play } from './fuzz-client.ts'
import type { Reply } from './fuzz-replies.ts'
import type { Script } from './fuzz-requests.ts'
import type { CampaignTrust } from './fuzz-trust.ts'
import { startFuzzUpstream } from './fuzz-upstream.ts'
import { type SidecarProcess, startSidecarProcess } from './sidecar-process.ts'
import { noteWhole, Trial, TrialRegister } from './trial.ts'

/** A violation, and which connections may have caused it. */
export interface Violation {
  readonly what: string
  /** What the client received, where one is concerned. */
  readonly received?: string
  readonly suspects: readonly Script[]
}

/** A sidecar that is being tried. */
export interface FuzzCampaign {
  readonly sidecar: SidecarProcess
  /** Requests that arrived whole at the upstream. */
  readonly forwarded: number
  /** Plays one script and judges it; what turns up later is judged later. */
  run(script: Script): Promise<Trial>
  /** The first violation so far, whoever caused it. */
  violation(): Violation | undefined
  /** Forgets all trials and violations but the death of the sidecar. */
  forget(): void
  /** Stops everything. Returns the sidecar's exit code. */
  stop(): Promise<number | null>
}

/** How long after its end a trial's requests may still turn up at the upstream, in milliseconds. */
const AFTERMATH_MS = 2000
/** How long a client waits. Longer than every timeout of the sidecar. */
const PATIENCE_MS = 15_000

/** Short enough that a stalled upstream costs little, long enough for a busy machine. */
const SETTINGS = {
  'timeouts-idle-seconds': '3',
  'timeouts-upstream-response-seconds': '3',
  'limits-login-failures-count': '1000000',
  'log-access': 'off',
}

const TO_A_STRANGER: Reply = {
  pieces: ['HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ending: 'close',
  early: false,
}

/** Starts an upstream and a sidecar in front of it. */
export async function startFuzzCampaign(trust: CampaignTrust): Promise<FuzzCampaign> {
  const register = new TrialRegister()
  const live = new Set<Trial>()
  const violations: Violation[] = []
  let forwarded = 0
  const suspects = () => [...live].map(({ script }) => script)

  const upstream = await startFuzzUpstream({
    onViolation: (what, bytes) =>
      violations.push({
        what: `at the upstream: ${what}: ${JSON.stringify(bytes.slice(0, 300))}`,
        suspects: suspects(),
      }),
    onHead(seen) {
      const sighted = register.sight(seen)
      if (sighted === undefined) {
        const what = `a request that no client sent: ${JSON.stringify(`${seen.method} ${seen.target}`)}`
        violations.push({ what, suspects: suspects() })
        return { reply: TO_A_STRANGER, onWhole() {}, onAnswered() {} }
      }
      const { tracked, sighting } = sighted
      return {
        reply: tracked.reply,
        onWhole(whole) {
          forwarded++
          noteWhole(tracked, sighting, whole)
        },
        onAnswered() {
          sighting.answered = true
        },
      }
    },
  })
  const sidecar = await startSidecarProcess({
    ...trust.flags,
    ...SETTINGS,
    'upstream-url': `http://127.0.0.1:${upstream.port}`,
  })

  return {
    sidecar,
    get forwarded() {
      return forwarded
    },
    async run(script) {
      const trial = new Trial(script, trust.known)
      register.add(trial)
      live.add(trial)
      const view = await play({
        port: sidecar.port,
        script,
        isComplete: (received, ended) => trial.isComplete(received, ended),
        patienceMs: PATIENCE_MS,
      }).catch((error: Error) => error)
      if (view instanceof Error) trial.note(`no connection: ${view.message}`)
      else trial.judge(view)
      setTimeout(() => {
        if (trial.problem !== undefined) return // it stays, so that it is found
        live.delete(trial)
        register.delete(trial)
      }, AFTERMATH_MS).unref()
      return trial
    },
    violation() {
      for (const { problem, script, received } of live) {
        if (problem !== undefined) return { what: problem, suspects: [script], received }
      }
      if (violations[0] !== undefined) return violations[0]
      const [complaint] = sidecar.complaints
      if (sidecar.ended !== undefined) {
        return { what: `the sidecar ended: ${sidecar.ended}; ${complaint}`, suspects: suspects() }
      }
      if (complaint === undefined) return undefined
      return { what: `the sidecar complained: ${complaint}`, suspects: suspects() }
    },
    forget() {
      for (const trial of live) register.delete(trial)
      live.clear()
      violations.length = 0
      sidecar.complaints.length = 0
    },
    async stop() {
      const code = await sidecar.stop()
      await upstream.close()
      return code
    },
  }
}
