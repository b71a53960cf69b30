#!/usr/bin/env node
/**
 * The program's entry, and the only file that acts on import. Handles signals before it loads everything else: a signal
 * meanwhile would end the process, or be lost where it is process 1, as in a container.
 */
import { setFlagsFromString } from 'node:v8'
import { Signals } from './cli/signals.ts'

// Upload buffers are external memory: V8 marks the complete heap for each 64 MB of it, which costs as much CPU time as the
// upload. Node 24 can count them in the heap limit; before, incremental marking without threads is seldom started.
// Measured: 1,800 -> 760 ms/GB on Node 20, 1,560 -> 940 on Node 26.
const isNode24 = Number.parseInt(process.versions.node, 10) >= 24
setFlagsFromString(isNode24 ? '--external-memory-accounted-in-global-limit' : '--no-concurrent-marking')

const signals = new Signals({
  process,
  // Under `npm start`, Ctrl-C arrives twice: from the terminal, and passed on by npm.
  echoMs: process.env['npm_lifecycle_event'] === 'start' ? 500 : 0,
  monotonicNow: () => performance.now(),
})
const command = process.argv[2]
if (command === 'serve' || command === 'demo') void signals.listen()
// The primary tells a worker when to stop; Ctrl-C signals the whole process group.
if (command === 'worker') signals.ignore()

const { runProgram } = await import('./cli/program.ts')
void runProgram({ signals, entry: import.meta.filename })
