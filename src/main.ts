#!/usr/bin/env node
/**
 * The program's entry, and the only file that acts on import. Handles signals before it loads everything else: a signal
 * meanwhile would end the process, or be lost where it is process 1, as in a container.
 */
import { setFlagsFromString } from 'node:v8'
import { Signals } from './cli/signals.ts'

// The chunks of an upload lie outside of the heap, and V8 marks the heap for each 64 MB of them. From Node 24 on the limit of
// the heap can count them instead. Measured on Node 26: an upload takes 940 ms of CPU time per GB instead of 1,560.
if (Number.parseInt(process.versions.node, 10) >= 24) {
  setFlagsFromString('--external-memory-accounted-in-global-limit')
}

// Under `npm start`, Ctrl-C arrives twice: from the terminal, and passed on by npm.
const signals = new Signals(process.env['npm_lifecycle_event'] === 'start' ? 500 : 0)
const command = process.argv[2]
if (command === 'serve' || command === 'demo') void signals.listen()
// The primary tells a worker when to stop; Ctrl-C signals the whole process group.
if (command === 'worker') signals.ignore()

const { runProgram } = await import('./cli/program.ts')
void runProgram(signals)
