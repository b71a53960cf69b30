import t from 'tap'
import { byteRange } from '../../src/demo/byte-range.ts'

t.test('reads one range of bytes', async (t) => {
  const table: [string, number, unknown][] = [
    ['bytes=0-4', 10, { first: 0, last: 4 }],
    ['bytes=4-4', 10, { first: 4, last: 4 }],
    ['bytes=3-', 10, { first: 3, last: 9 }],
    ['bytes=3-99', 10, { first: 3, last: 9 }],
    ['bytes=-3', 10, { first: 7, last: 9 }],
    ['bytes=-99', 10, { first: 0, last: 9 }],
    ['Bytes= 0-4 ', 10, { first: 0, last: 4 }],
  ]
  for (const [header, size, expected] of table) t.strictSame(byteRange(header, size), expected, header)
})

t.test('says which ranges lie outside', async (t) => {
  const table: [string, number][] = [
    ['bytes=10-', 10],
    ['bytes=10-20', 10],
    ['bytes=-0', 10],
    ['bytes=0-', 0],
    ['bytes=-1', 0],
  ]
  for (const [header, size] of table) t.equal(byteRange(header, size), 'unsatisfiable', header)
})

t.test('ignores what is not one range of bytes, so that the whole is sent', async (t) => {
  for (const header of [
    undefined,
    '',
    'bytes=-',
    'bytes=4-3',
    'bytes=0-1,3-4',
    'lines=0-4',
    'bytes=a-b',
    'bytes=0x1-2',
  ])
    t.equal(byteRange(header, 10), undefined, header ?? 'no header')
})
