import t from 'tap'
import { listed, readChunks, readFields, single } from './http-grammar.ts'

t.test('field lines are read by the letter', async (t) => {
  const read = readFields('xxA: b\r\nc:\t d \r\n\r\nrest', 2)
  t.same(read, {
    fields: [
      { name: 'A', value: 'b', padded: false },
      { name: 'c', value: 'd', padded: true },
    ],
    end: 18,
  })
  for (const bad of [
    ' a: b',
    'a : b',
    'no colon',
    ': b',
    'a: b\r\n c',
    'a: b\0',
    'a: \x7f',
    'a: b\rc',
    'a: b\nc: d',
    'ä: b',
  ]) {
    t.equal(readFields(`${bad}\r\n\r\n`, 0), 'bad', JSON.stringify(bad))
  }
  for (const cut of ['', 'a', 'a: b', 'a: b\r', 'a: b\r\n', 'a: b\r\n\r']) {
    t.equal(readFields(cut, 0), undefined, JSON.stringify(cut))
  }
})

t.test('chunks are read by the letter', async (t) => {
  t.same(readChunks('3\r\nabc\r\n00A;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\nrest', 0), {
    body: 'abc0123456789',
    trailers: [{ name: 'T', value: 'u', padded: false }],
    end: 40,
    plain: true,
  })
  for (const odd of ['3;q="v"\r\nabc', '3 ;x\r\nabc', '0000000003\r\nabc']) {
    t.match(readChunks(`${odd}\r\n0\r\n\r\n`, 0), { body: 'abc', plain: false }, odd)
  }
  for (const bad of [
    '3 \r\nabc',
    '+3\r\nabc',
    '0x3\r\nabc',
    '-3\r\nabc',
    '3\nabc',
    '3;\n\r\nabc',
    '2\r\nabc',
    '3\r\nabc\n',
    'g\r\n',
  ]) {
    t.equal(readChunks(`${bad}\r\n0\r\n\r\n`, 0), 'bad', JSON.stringify(bad))
  }
  for (const cut of [
    '',
    '3',
    '3\r',
    '3\r\nab',
    '3\r\nabc',
    '3\r\nabc\r\n',
    '3\r\nabc\r\n0\r\n',
    '0\r\nT: u\r\n',
    'fff\r\nabc',
  ]) {
    t.equal(readChunks(cut, 0), undefined, JSON.stringify(cut))
  }
})

t.test('single values and lists are found in any case', async (t) => {
  const fields = ['A: x', 'b: 1, ,2', 'B:3', 'a: y'].map((line) => {
    const [name = '', value = ''] = line.split(':')
    return { name, value: value.trim(), padded: false }
  })
  t.equal(single(fields, 'a'), 'twice')
  t.equal(single(fields, 'c'), undefined)
  t.same(single(fields.slice(0, 1), 'a'), { value: 'x' })
  t.same(listed(fields, 'b'), ['1', '2', '3'])
})
