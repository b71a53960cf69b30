import t from 'tap'
import { type Parse, parseBatches } from '../../src/reload/parse-thread.ts'

/** Parses so many bytes in a thread with the parser that a module exports: the sizes of the batches. */
async function batchSizes(parser: string, bytes: number): Promise<number[]> {
  const neverInline: Parse<unknown> = () => ({ ok: false, problems: ['parsed inline'] })
  const module = `data:text/javascript,export const parse = ${encodeURIComponent(parser)}`
  const sizes: number[] = []
  for await (const batch of parseBatches(neverInline, module, new Uint8Array(bytes))) {
    sizes.push(batch.ok ? batch.value.length : -1)
  }
  return sizes
}

const lengthOf = '({ length }) => ({ ok: true, value: Array(length >> 7).fill(0), warnings: [] })'

t.test('large files are parsed in batches, several at a time', async (t) => {
  const small = [500, 12]
  const large = [...Array(16).fill(500), 192]
  t.same(await Promise.all([65_537, 65_537, 1_048_577].map((bytes) => batchSizes(lengthOf, bytes))), [
    small,
    small,
    large,
  ])
})

t.test('a parser that fails fails its file, and the next file is parsed', async (t) => {
  await t.rejects(batchSizes('() => { throw new Error("no memory") }', 65_537))
  t.same(await batchSizes(lengthOf, 65_537), [500, 12])
})
