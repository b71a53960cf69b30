import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { isRequestId, requestIdOf } from '../../src/gate/request-id.ts'

t.test('a client keeps an id of 1 to 128 plain characters', async (t) => {
  for (const id of ['a', 'Z', '0', '-', '_', '.', 'az09AZ._-', randomUUID(), 'x'.repeat(128)])
    t.equal(isRequestId(id), true, id)
})

t.test('no other id is kept', async (t) => {
  for (const id of [
    '',
    'x'.repeat(129),
    'a b',
    'a\tb',
    'a,b',
    'a/b',
    'a:b',
    'a@b',
    'a[b',
    'a`b',
    'a{b',
    'a;b',
  ])
    t.equal(isRequestId(id), false, id)
  for (const id of ['\u00e9', 'a\r\nX-Injected: 1', 'a\0', 'a\x1b[2J', '$(id)', '"', "'"])
    t.equal(isRequestId(id), false, JSON.stringify(id))
})

t.test('the rule is the character class it says it is', async (t) => {
  const id = fc.string({ unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)) })
  const plain = fc.string({ unit: fc.constantFrom(...'azAZ09._-/:@[`{,'), maxLength: 140 })
  const asWritten = fc.property(
    fc.oneof(id, plain),
    (text) => isRequestId(text) === /^[A-Za-z0-9._-]{1,128}$/.test(text),
  )
  t.doesNotThrow(() => fc.assert(asWritten, { numRuns: 2000 }))
})

t.test('the id of a request that was refused is found in its header lines', async (t) => {
  t.equal(requestIdOf(['Host', 'a', 'X-REQUEST-ID', 'abc']), 'abc')
  t.equal(requestIdOf([]), undefined)
  t.equal(requestIdOf(['Host', 'a']), undefined)
  t.equal(requestIdOf(['X-Request-Id', 'not one']), undefined)
  t.equal(requestIdOf(['X-Request-Id', 'abc', 'x-request-id', 'abc']), undefined, 'two are none')
  t.equal(requestIdOf(['X_Request_Id', 'abc']), undefined, 'a look-alike is none')
  t.equal(requestIdOf(['X-Other', 'X-Request-Id']), undefined, 'a value is no name')
})
