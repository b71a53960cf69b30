#!/usr/bin/env node
/**
 * The entry of the program.
 * It installs its signal handlers before it loads any other module: without a handler, a signal
 * would end the process during the load, and process 1 of a container would ignore the signal.
 */
import type { Signals, StopSignal } from './cli/serve.ts'

const signals: Signals = { listen, beforeExit() {}, onHangUp() {}, onVerbose() {} }
// Under `npm start`, the terminal and npm both send the signal of one Ctrl-C.
// The copy is not a second signal.
const ECHO_MS = process.env['npm_lifecycle_event'] === 'start' ? 500 : 0
let stop: Promise<StopSignal> | undefined

function listen(): Promise<StopSignal> {
  stop ??= new Promise((resolve) => {
    let firstAtMs: number | undefined
    const onStop = (signal: StopSignal) => {
      resolve(signal)
      if (firstAtMs !== undefined && performance.now() - firstAtMs >= ECHO_MS) {
        signals.beforeExit()
        process.exit(1)
      }
      firstAtMs ??= performance.now()
    }
    process.on('SIGTERM', onStop).on('SIGINT', onStop)
    process.on('SIGHUP', () => signals.onHangUp())
    process.on('SIGUSR2', () => signals.onVerbose())
  })
  return stop
}

const command = process.argv[2]
if (command === 'serve' || command === 'demo') {
  listen()
}
// A worker ignores signals, because only the primary stops it.
// Ctrl-C signals the whole process group, workers included.
if (command === 'worker') {
  for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2']) {
    process.on(name, () => {})
  }
}

const { runProgram } = await import('./cli/program.ts')
runProgram(signals)
