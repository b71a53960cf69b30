import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { type Parse, readRows } from '../../src/reload/parse-thread.ts'

const directory = t.testdir({})
let files = 0

/** Reads a file of so many bytes with the parser that a module exports: how many rows, or the problems. */
async function rows(parser: string, bytes: number): Promise<number | readonly string[]> {
  const path = join(directory, String(files++))
  writeFileSync(path, new Uint8Array(bytes))
  const parse: Parse<number> = () => ({ ok: false, problems: ['parsed inline'] })
  const moduleUrl = `data:text/javascript,export const parse = ${encodeURIComponent(parser)}`
  let count = 0
  const read = await readRows({ path, maxBytes: 2_000_000, parse, moduleUrl }, () => {
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

t.test('a parser error fails its file only', async (t) => {
  t.same(await rows('() => { throw new Error("no memory") }', 65_537), [
    'file: cannot be parsed: the parser thread failed',
  ])
  t.same(await rows(lengthOf, 65_537), 512)
})
