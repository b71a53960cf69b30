import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { mock } from 'node:test'
import t from 'tap'
import { type Parse, readRows } from '../../src/files/parse-thread.ts'

const directory = t.testdir({})
let files = 0

/** Reads a file of so many bytes with the parser that a module exports: how many rows, or the problems. */
async function rows(parser: string, bytes: number): Promise<number | readonly string[]> {
  const path = join(directory, String(files++))
  writeFileSync(path, new Uint8Array(bytes))
  const parse: Parse<number> = () => ({ ok: false, problems: ['parsed inline'] })
  const moduleUrl = `data:text/javascript,export const parse = ${encodeURIComponent(parser)}`
  let count = 0
  const read = await readRows(path, parse, moduleUrl, () => {
    count++
  })
  return read.ok ? count : read.problems.map((problem) => problem.replace(path, 'file'))
}

const lengthOf = '({ length }) => ({ ok: true, value: Array(length >> 7).fill(0), warnings: [] })'

t.test('large files are parsed in a thread, several at a time', async (t) => {
  t.same(
    await Promise.all([65_537, 65_537, 1_048_577].map((bytes) => rows(lengthOf, bytes))),
    [512, 512, 8192],
  )
  t.same(await rows(lengthOf, 65_536), ['file:parsed inline'], 'a small one is not')
})

const REFUSED = 'file: cannot be parsed within 30 s and 640 MB of memory'

t.test(
  'a file that ends its thread fails alone: by an error, too much memory or too much time',
  async (t) => {
    t.same(await rows('() => { throw new Error("no memory") }', 65_537), [REFUSED])
    t.same(await rows('() => { const list = []; for (;;) list.push(Array(1e6).fill(0.5)) }', 65_537), [
      REFUSED,
    ])
    const { timers } = mock
    timers.enable({ apis: ['setTimeout'] })
    t.teardown(() => timers.reset())
    const endless = rows('() => { for (;;); }', 65_537)
    const ticking = setInterval(() => timers.tick(1000), 10)
    t.same(await endless, [REFUSED])
    clearInterval(ticking)
    t.same(await rows(lengthOf, 65_537), 512)
  },
)
