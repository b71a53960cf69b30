/**
 * Seconds from a change of a file to its being in force, for each way of writing, watched and not.
 *
 *     node --import=ts-blank-space/register bench/reload.ts [--rounds 50] [--only renamed]
 *
 * @module
 */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import type { Watch } from '../src/files/directory-watch.ts'
import { versionOf } from '../src/files/files-version.ts'
import { followFiles } from '../src/files/follow-files.ts'
import { createRevocations } from '../src/token/revocations.ts'
import { createRevocationsLoader } from '../src/token/revocations-file.ts'
import { WAYS_OF_WRITING, type WayOfWriting } from '../test/support/ways-of-writing.ts'
import { median } from './lab/statistics.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '50' }, only: { type: 'string', default: '' } },
})
const rounds = Number(values.rounds)

const silent = { info: () => {}, warn: () => {}, error: () => {} }
const noWatch: Watch = () => {
  throw new Error('not watched')
}

/** Writes one version after the other, each at another moment of the poll, and times each. */
async function measure(write: WayOfWriting, entries: number, watch?: Watch): Promise<number[]> {
  const root = mkdtempSync(join(tmpdir(), 'reload-'))
  const directory = join(root, 'files')
  const file = join(directory, 'revocations.yaml')
  const version = () => {
    const list = Array.from({ length: entries }, () => `- jti: ${randomUUID()}\n`)
    return `revocations:\n${list.join('')}`
  }
  write(directory, 'revocations.yaml', version())
  let inForce = () => {}
  const following = followFiles({
    subject: 'revocations',
    paths: [file],
    initial: createRevocations([]),
    version: await versionOf([file]),
    load: createRevocationsLoader({ file, required: true }),
    onChange: () => inForce(),
    log: silent,
    now: Date.now,
    ...(watch && { watch }),
  })
  const seconds: number[] = []
  for (let round = 0; round < rounds; round++) {
    await sleep(300 + Math.random() * 250)
    const text = version()
    const done = new Promise<void>((resolve) => {
      inForce = resolve
    })
    write(directory, 'revocations.yaml', text)
    const written = performance.now()
    await done
    seconds.push((performance.now() - written) / 1000)
  }
  following.stop()
  rmSync(root, { recursive: true })
  return seconds
}

const alive = setInterval(() => {}, 1000) // following keeps no process alive
console.log('| a file | median s | worst s | median s, not watched | worst s, not watched |')
console.log('|---|---|---|---|---|')
const ways: (readonly [string, WayOfWriting, number])[] = [
  ...Object.entries(WAYS_OF_WRITING).map(([way, write]) => [way, write, 3] as const),
  ['of 100,000 revocations, renamed over', WAYS_OF_WRITING['renamed over'], 100_000],
]
for (const [way, write, entries] of ways.filter(([way]) => way.includes(values.only))) {
  const watched = await measure(write, entries)
  const cells = [watched, await measure(write, entries, noWatch)].flatMap((seconds) => [
    median(seconds),
    Math.max(...seconds),
  ])
  console.log(`| ${way} | ${cells.map((cell) => cell.toFixed(3)).join(' | ')} |`)
}
clearInterval(alive)
