/**
 * A sidecar of several processes. Workers share the data listener, load keys and credentials,
 * and serve requests. The primary process serves the admin listener for all of them.
 */
import type { AppOptions } from '../app.ts'
import { InvalidAuthData, openAuthData } from '../auth/auth-data.ts'
import type { LogDestination, Logger } from '../base/log.ts'
import type { Config } from '../config/config.ts'
import { SHARED_LIMITS } from '../config/schema.ts'
import { type App, LifeCycle, startedTogether } from '../life-cycle.ts'
import { type AdminData, createAdminListener } from '../ops/admin.ts'
import { sumOfCounts } from '../ops/busiest-accounts.ts'
import { storedFamilies } from '../ops/exposition.ts'
import { familiesOf, type PrimaryValues, type ProcessCounts } from '../ops/metrics.ts'
import { VerboseLog } from '../ops/verbose-log.ts'
import { needsAuthData, openAdminRooms } from '../rooms.ts'
import { activeContextOf, certificateFiles, openCertificateSet } from '../tls/certificates.ts'
import { aggregate } from './aggregate.ts'
import { openFilesLimit, withinOpenFiles } from './open-files.ts'
import { WorkerPool } from './pool.ts'

/** `start` rejects with the first error of a worker. @throws InvalidAuthData for certificates of `admin` */
export async function createPrimary(
  { config, log, processCounts, settingsFile }: AppOptions,
  count: number,
  destination: LogDestination,
): Promise<App> {
  const pool = new WorkerPool(count, { config: configOfWorker(config, count, log), log, destination })
  const lifeCycle = new LifeCycle()
  const verboseLog = new VerboseLog(log, (isOn) => pool.setVerbose(isOn))
  const adminData = createAdminData(pool, lifeCycle, processCounts)
  const files = certificateFiles(config).find(({ name }) => name === 'admin')
  // The workers count reloads.
  const opened = files && (await openCertificateSet(files, log, Date.now, () => {}))
  if (opened?.ok === false) {
    throw new InvalidAuthData(opened.problems)
  }
  // Each worker has its own cache.
  const cache = { ...config.cache, maxTokens: config.cache.maxTokens * count }
  const secureContext = activeContextOf(opened?.value)
  // The workers report reloads, and what they say of the files.
  const authData = needsAuthData(config) ? await openAuthData({ config, log, now: Date.now }) : undefined
  const rooms = await openAdminRooms({ config, log, now: Date.now, authData })
  const forAdmin = { config: { ...config, cache }, adminData, secureContext, log, now: Date.now, rooms }
  const admin = createAdminListener(forAdmin)
  const sources = startedTogether([opened?.value, authData].filter((source) => source !== undefined))
  const parts = { config, log, settingsFile, sources, service: pool, adminData, admin }
  return { ...lifeCycle.appOf(parts), verboseLog }
}

function createAdminData(pool: WorkerPool, lifeCycle: LifeCycle, counts: ProcessCounts): AdminData {
  const isReady = (responding: number) => lifeCycle.isRunning() && responding === pool.count
  const firstKnown = async <Name extends 'jwks' | 'signingKid'>(name: Name) => {
    await pool.update('status')
    return pool.states().find((state) => state[name] !== undefined)?.[name]
  }
  return {
    async conditions() {
      const responding = await pool.update('status')
      const state = lifeCycle.isDraining() ? 'draining' : (`${responding} of ${pool.count}` as const)
      const states = pool.states()
      // The first worker that is not ready is shown, or else the first worker.
      const shown = states.find(({ conditions }) => conditions.some(({ ok }) => !ok)) ?? states[0]
      return [...(shown?.conditions ?? []), { name: 'workers', ok: isReady(responding), state }]
    },
    jwks: () => firstKnown('jwks'),
    signingKid: () => firstKnown('signingKid'),
    accounts: () => sumOfCounts(pool.states().map(({ accounts }) => accounts)),
    async metrics(group) {
      const responding = await pool.update(group)
      const own = familiesOf({
        workers: responding,
        ready: Number(isReady(responding)),
        worker_restarts_total: pool.restarts,
        ...counts(),
      } satisfies PrimaryValues)
      return aggregate([await storedFamilies(own), ...(await pool.metrics())])
    },
  }
}

/**
 * The settings of one worker: its share of the limits, within its open files.
 * `node:cluster` gives no more connections to a worker that has once run out of them.
 */
function configOfWorker(config: Config, count: number, log: Logger): Config {
  const limits = { ...config.limits }
  for (const name of SHARED_LIMITS) {
    limits[name] = Math.max(1, Math.floor(limits[name] / count))
  }
  return withinOpenFiles({ ...config, limits, workers: count }, openFilesLimit(), log)
}
