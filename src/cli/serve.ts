/**
 * `serve`: runs the sidecar until a signal stops it. SIGTERM drains with a lame duck, SIGINT without one; a second
 * signal stops at once. The exit code is 0, or 1 if a request was aborted.
 */
import type { Command } from 'commander'
import type { App } from '../app.ts'
import type { Config } from '../config/config.ts'
import type { LoadedConfig } from '../config/load.ts'
import { StoppedWhileStarting } from '../ops/life-cycle.ts'
import { CommandFailure, type CommandIo, createCommand } from './command-io.ts'
import { addSettingFlags, asUsage, loadSettings, type ParsedOptions, usable } from './config.ts'
import type { StopSignal } from './signals.ts'

export interface ServeDependencies {
  readonly createApp: (loaded: LoadedConfig) => Promise<App>
  /** Resolves with the first signal that asks to stop. Called before anything listens. */
  readonly stopRequested: () => Promise<StopSignal>
}

const EXAMPLES = `
Examples:
  storage-auth-sidecar serve --config /etc/storage-auth-sidecar/sidecar.yaml
  SIDECAR_UPSTREAM_URL=http://127.0.0.1:9000 storage-auth-sidecar serve --keys-directory ./keys \\
    --credentials-file ./credentials.yaml`

export function serveCommand(io: CommandIo, deps: ServeDependencies): Command {
  return addSettingFlags(createCommand('serve', 'run the sidecar', io))
    .addHelpText('after', EXAMPLES)
    .action(async (options: ParsedOptions) => {
      await serve(usable(loadSettings(options, io)), deps)
    })
}

async function serve(loaded: LoadedConfig, deps: ServeDependencies): Promise<void> {
  let isStopping = false
  const stop = deps.stopRequested().then((signal) => {
    isStopping = true
    return signal
  })
  const { config } = loaded
  try {
    const app = await deps.createApp(loaded)
    // A process that is stopped while it starts does not begin to listen.
    if (!isStopping) await Promise.race([app.start().catch((error) => rethrowFault(error, config)), stop])
    const { cut } = await app.stop({ lameDuck: (await stop) === 'SIGTERM' })
    if (cut > 0) throw new CommandFailure(`requests aborted at the end of shutdown.deadlineSeconds: ${cut}`)
  } catch (error) {
    throw asUsage(error, loaded)
  }
}

/** Node's error of a listener; `hostname` replaces address and port when the name has no address. */
type ListenError = NodeJS.ErrnoException & { readonly [Name in 'address' | 'hostname' | 'port']?: unknown }

function rethrowFault(error: ListenError, { admin }: Config): void {
  if (error instanceof StoppedWhileStarting) return
  const { code = '', syscall, address, hostname, port, message } = error
  if (syscall === undefined) throw error
  if (syscall.startsWith('spawn')) throw new CommandFailure(`cannot start a worker: ${message}`)
  const host = address ?? hostname
  const group = (port === undefined ? host === admin.host : port === admin.port) ? 'admin' : 'listen'
  const words = LISTEN_ERRORS[code]?.(host, port, group)
  throw new CommandFailure(words ?? `cannot listen on ${host} port ${port}: ${code}`)
}

/** What Node's error codes of a listener mean, and which setting to change. */
const LISTEN_ERRORS: Readonly<Record<string, (host: unknown, port: unknown, group: string) => string>> = {
  EADDRINUSE: (_, port, group) => `port ${port} is in use (${group}.port)`,
  EADDRNOTAVAIL: (host, _, group) => `${host} is not an address of this machine (${group}.host)`,
  EAFNOSUPPORT: (host, _, group) => `this machine has no addresses of the kind of ${host} (${group}.host)`,
  EACCES: (_, port, group) =>
    `port ${port} needs a privilege that this process does not have; choose one above 1023 (${group}.port)`,
  ENOTFOUND: (host, _, group) => `the name ${host} has no address (${group}.host)`,
  EAI_AGAIN: (host, _, group) => `the address of ${host} cannot be looked up now (${group}.host)`,
  EMFILE: () => 'too many open files: raise ulimit -n',
}
