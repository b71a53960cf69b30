import t from 'tap'
import { parseRfc3339 } from '../src/rfc3339.ts'

t.test('a time with a zone is read', async (t) => {
  const times: [string, string][] = [
    ['2027-01-31T08:00:00Z', '2027-01-31T08:00:00.000Z'],
    ['2027-01-31t08:00:00z', '2027-01-31T08:00:00.000Z'],
    ['2027-01-31T08:00:00.25+02:00', '2027-01-31T06:00:00.250Z'],
    ['2027-01-31T23:30:00-01:30', '2027-02-01T01:00:00.000Z'],
    ['2028-02-29T00:00:00Z', '2028-02-29T00:00:00.000Z'],
    ['9999-12-31T23:59:59.9999Z', '9999-12-31T23:59:59.999Z'],
    ['0000-01-01T00:00:00Z', '0000-01-01T00:00:00.000Z'],
  ]
  for (const [text, time] of times) t.equal(parseRfc3339(text), Date.parse(time), text)
})

t.test('a part of a millisecond is left out or made a whole one, as asked for', async (t) => {
  const whole = Date.parse('2027-01-31T08:00:00.001Z')
  for (const digits of ['0010', '0010001', '001999999', '001000000000000000001']) {
    const text = `2027-01-31T08:00:00.${digits}Z`
    t.equal(parseRfc3339(text), whole, text)
    t.equal(parseRfc3339(text, 'down'), whole, text)
    t.equal(parseRfc3339(text, 'up'), digits === '0010' ? whole : whole + 1, text)
  }
  t.equal(parseRfc3339('2027-01-31T08:00:59.9999Z', 'up'), Date.parse('2027-01-31T08:01:00Z'))
  t.equal(parseRfc3339('9999-12-31T23:59:59.9999Z', 'up'), undefined, 'and may then have no year any more')
})

t.test('a leap second is the first second of the next minute', async (t) => {
  const newYear = Date.parse('2017-01-01T00:00:00Z')
  t.equal(parseRfc3339('2016-12-31T23:59:60Z'), newYear)
  t.equal(parseRfc3339('2016-12-31t15:59:60.00-08:00'), newYear)
  t.equal(parseRfc3339('2017-01-01T05:29:60+05:30'), newYear)
  t.equal(parseRfc3339('2016-12-31T23:59:60.25Z'), newYear + 250)
  t.equal(parseRfc3339('2016-12-31T23:59:60.0001Z', 'up'), newYear + 1)
  t.equal(parseRfc3339('2015-06-30T23:59:60Z'), Date.parse('2015-07-01T00:00:00Z'))
})

t.test('anything else is refused, also what Date.parse would take', async (t) => {
  const others = [
    '',
    '2027-01-31',
    '2027-01-31T08:00:00',
    '2027-01-31 08:00:00Z',
    '2027-01-31T08:00Z',
    '2027-02-30T00:00:00Z',
    '2027-02-29T00:00:00Z',
    '2027-13-01T00:00:00Z',
    '2027-01-01T24:00:00Z',
    '2027-01-01T23:59:60Z', // no leap second is put into the middle of a month,
    '2016-12-31T23:59:60+01:00', // of an hour,
    '2016-12-31T23:58:60Z',
    '2016-12-31T23:59:61Z',
    '9999-12-31T23:59:60Z',
    '9999-12-31T23:59:59-00:01', // the year 10000
    '0000-01-01T00:00:00+00:01', // the year -1
    '2027-01-01T00:00:00+24:00',
    '2027-01-01T00:00:00Z\n',
    'Sun, 31 Jan 2027 08:00:00 GMT',
    '1801382400',
  ]
  for (const text of others) t.equal(parseRfc3339(text), undefined, text)
})
