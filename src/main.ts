#!/usr/bin/env node
/**
 * The program's entry. Signals are handled before anything else is loaded: a signal meanwhile would end the process, or
 * be lost by process 1 of a container.
 */
import { Signals } from './cli/signals.ts'

const signals = new Signals()
const command = process.argv[2]
// Under `npm start`, Ctrl-C arrives twice: from the terminal, and passed on by npm.
const echoMs = process.env['npm_lifecycle_event'] === 'start' ? 500 : 0
if (command === 'serve' || command === 'demo') void signals.listen(echoMs)
// The primary tells a worker when to stop; Ctrl-C signals the whole process group.
if (command === 'worker') for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(name, () => {})

const { runProgram } = await import('./cli/program.ts')
void runProgram(signals)
