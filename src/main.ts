#!/usr/bin/env node
/**
 * The program's entry, and its signals, which are handled before anything else is loaded: a signal meanwhile would end
 * the process, or be lost by process 1 of a container.
 */
import type { Signals, StopSignal } from './cli/serve.ts'

const signals: Signals = { listen, beforeExit() {}, onHangUp() {} }
// Under `npm start`, Ctrl-C arrives twice: from the terminal, and passed on by npm.
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
  })
  return stop
}

const command = process.argv[2]
if (command === 'serve' || command === 'demo') void listen()
// The primary tells a worker when to stop; Ctrl-C signals the whole process group.
if (command === 'worker') for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(name, () => {})

const { runProgram } = await import('./cli/program.ts')
void runProgram(signals)
