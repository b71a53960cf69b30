#!/usr/bin/env node
/**
 * The program's entry, and the only file that acts on import.
 *
 * Hears signals first and loads everything else then: a signal in the moments between would end the process, or be lost
 * for good where it is process 1, as in a container. Only Node's own start, some 40 ms, comes before.
 *
 * @module
 */
import { Signals } from './cli/signals.ts'

const signals = new Signals({
  process,
  // Under `npm start`, Ctrl-C arrives twice: from the terminal, and passed on by npm.
  echoMs: process.env['npm_lifecycle_event'] === 'start' ? 500 : 0,
  monotonicNow: () => performance.now(),
})
const command = process.argv[2]
if (command === 'serve' || command === 'demo') signals.hear()
// A worker is told what to do by its supervisor; a signal to the terminal's processes is none of its business.
if (command === 'worker') signals.ignore()

const { runProgram } = await import('./cli/program.ts')
void runProgram({ signals, entry: import.meta.filename })
