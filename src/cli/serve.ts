/**
 * `serve`: runs the sidecar until a signal stops it, in this process or in several `worker` processes.
 * SIGTERM drains with a lame duck, SIGINT without one, a second signal stops at once.
 * Exit code 1: the drain aborted a request.
 */
import { statSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { Command } from 'commander'
import type { AppOptions, ServingApp } from '../app.ts'
import { createLog, type LogDestination, type Logger } from '../base/log.ts'
import { type Loaded, NotDone } from '../base/result.ts'
import type { Config, Problem } from '../config/config.ts'
import { changedSettings, type LoadedConfig } from '../config/load.ts'
import type { App } from '../life-cycle.ts'
import { openFilesLimit, withinOpenFiles } from '../workers/open-files.ts'
import { type CommandIo, UsageFailure } from './command-io.ts'
import {
  addSettingFlags,
  configFromFlags,
  readSettings,
  rethrowAsUsage,
  type SettingFlags,
} from './config.ts'

export type StopSignal = 'SIGTERM' | 'SIGINT'

export interface Signals {
  /** Resolves with the first signal that requests a stop. A second signal ends the process at once. */
  listen(): Promise<StopSignal>
  /** Called before a second signal ends the process. */
  beforeExit: () => void
  onHangUp: () => void
  /** `SIGUSR2`. */
  onVerbose: () => void
}

export type ProcessContext = Readonly<{ signals: Signals; destination: LogDestination }>

export function serveCommand(io: CommandIo, serving: ProcessContext): Command {
  const command = io.command(
    'serve',
    'run the sidecar',
    'storage-auth-sidecar serve --config /etc/storage-auth-sidecar/sidecar.yaml',
    'SIDECAR_UPSTREAM_URL=http://127.0.0.1:9000 storage-auth-sidecar serve --keys-directory ./keys \\',
    '  --credentials-file ./credentials.yaml',
  )
  return addSettingFlags(command).action((flags: SettingFlags) => {
    const loaded = configFromFlags(flags, io)
    const readAgain = () => readSettings(flags, io)
    return serve(loaded, serving, readAgain).catch(rethrowAsUsage(loaded))
  })
}

type ReadSettings = () => Loaded<LoadedConfig, Problem>

async function serve(loaded: LoadedConfig, serving: ProcessContext, readAgain: ReadSettings): Promise<void> {
  const stop = serving.signals.listen()
  const app = await createSidecar(loaded, serving, readAgain)
  // If a signal has arrived already, the listener never opens.
  const isStopping = await Promise.race([stop, undefined])
  if (!isStopping) {
    await Promise.race([app.start().catch(rethrowSystemError), stop])
  }
  const { cut } = await app.stop({ lameDuck: (await stop) === 'SIGTERM' })
  if (cut > 0) {
    throw new NotDone(`requests aborted at the end of shutdown.deadlineSeconds: ${cut}`)
  }
}

/**
 * Loads modules on demand: the primary of several workers needs neither the listener nor the proxy.
 * @param readAgain - reads the settings at each SIGHUP, to report those that differ
 */
export async function createSidecar(
  loaded: LoadedConfig,
  serving: ProcessContext,
  readAgain?: ReadSettings,
): Promise<App> {
  const { config, file } = loaded
  const { signals, destination } = serving
  const options = { ...setUpProcess(config, destination), settingsFile: file }
  const workers = config.workers === 'auto' ? availableParallelism() : config.workers
  const primary = async () =>
    (await import('../workers/primary.ts')).createPrimary(options, workers, destination)
  const alone = () => {
    const { log } = options
    return serveHere({ ...options, config: withinOpenFiles(config, openFilesLimit(), log) }, signals)
  }
  const created: Promise<App> = workers === 1 ? alone() : primary()
  // The app is reloaded once it is created, because it may have read some files before the signal.
  signals.onHangUp = async () => {
    if (readAgain !== undefined) {
      warnOfChangedSettings(loaded, readAgain, options.log)
    }
    const app = await created.catch(() => undefined)
    await app?.reload()
  }
  signals.onVerbose = async () => {
    const app = await created.catch(() => undefined)
    app?.verboseLog.toggle()
  }
  return created
}

/** A reload does not apply settings. A pipe cannot be read again: opening it would wait for a writer. */
function warnOfChangedSettings({ config, file }: LoadedConfig, readAgain: ReadSettings, log: Logger): void {
  if (file === undefined || !statSync(file, { throwIfNoEntry: false })?.isFile()) {
    return
  }
  const read = readAgain()
  if (!read.ok) {
    const problems = read.problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`))
    log.warn({ from: file, problems }, 'the configuration file is not valid: a restart would fail')
    return
  }
  const settings = changedSettings(config, read.value.config)
  if (settings.length > 0) {
    log.warn({ from: file, settings }, 'settings of the configuration file have changed: they need a restart')
  }
}

export const workerCommand = ({ signals, destination }: ProcessContext): Command =>
  new Command('worker').action(async () => {
    if (process.send === undefined) {
      throw new UsageFailure('workers are started by serve, with the setting workers')
    }
    const { runWorker } = await import('../workers/worker.ts')
    await runWorker((config) => serveHere({ ...setUpProcess(config, destination), worker: true }, signals))
  })

/** Creates the log of this process. An exception in one request must not end the others. */
function setUpProcess(config: Config, destination: LogDestination): AppOptions {
  const log = createLog(config.log.level, destination)
  let exceptions = 0
  process.on('uncaughtException', (err) => log.fatal({ err, count: ++exceptions }, 'uncaught exception'))
  const processCounts = () => ({
    log_lines_dropped_total: destination.dropped,
    uncaught_exceptions_total: exceptions,
  })
  return { config, log, processCounts }
}

async function serveHere(options: AppOptions, signals: Signals): Promise<ServingApp> {
  const { createApp } = await import('../app.ts')
  const app = await createApp(options)
  signals.beforeExit = app.abort
  return app
}

/** A listener or a worker that cannot start is no fault of the program. Its message is complete. */
function rethrowSystemError(error: NodeJS.ErrnoException): never {
  throw error.syscall === undefined ? error : new NotDone(error.message)
}
