import t from 'tap'
import { isChunked, isContentLength, isOneFraming } from '../../src/gate/framing.ts'

t.test('a length has one spelling', async (t) => {
  for (const value of ['0', '7', '10', '9'.repeat(15)]) t.equal(isContentLength(value), true, value)
  for (const value of ['', '00', '07', '+7', '-0', '7 ', '0x7', '1e3', '7,7', '9'.repeat(16)])
    t.equal(isContentLength(value), false, value)
})

t.test('chunked is the only transfer coding', async (t) => {
  for (const value of ['chunked', 'Chunked']) t.equal(isChunked(value), true, value)
  for (const value of ['', 'gzip, chunked', 'chunked, chunked', 'chunked;a', 'identity'])
    t.equal(isChunked(value), false, value)
})

t.test('two framings are none, nor are chunks in HTTP/1.0', async (t) => {
  t.equal(isOneFraming(undefined, undefined, true), true)
  t.equal(isOneFraming('5', undefined, true), true)
  t.equal(isOneFraming(undefined, 'chunked', false), true)
  t.equal(isOneFraming('5', 'chunked', false), false)
  t.equal(isOneFraming(undefined, 'chunked', true), false)
})
