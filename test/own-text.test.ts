import t from 'tap'
import { ownText } from '../src/own-text.ts'
import { keptMemory } from './support/kept-memory.ts'

const MEGABYTE = 1024 * 1024

t.test('a copy is the same text', async (t) => {
  const text = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code)).join('')
  t.equal(ownText(text), text)
  t.equal(ownText(''), '')
})

t.test('a copy keeps nothing alive of what it was cut from', async (t) => {
  const kept: string[] = []
  const cut = (own: (text: string) => string) =>
    keptMemory(() => {
      for (let n = 0; n < 100; n++)
        kept.push(
          own(
            Buffer.alloc(MEGABYTE / 4, 'a')
              .toString('latin1')
              .slice(100, 200),
          ),
        )
    })
  t.ok(cut(ownText) < 5 * MEGABYTE)
  t.ok(cut((text) => text) > 20 * MEGABYTE, 'as a part of it does: else there is no need of copies any more')
  t.equal(kept.length, 200)
})
