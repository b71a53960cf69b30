import t from 'tap'
import { parseRfc3339 } from '../src/rfc3339.ts'

t.test('a time with a zone is read', async (t) => {
  const times: [string, string][] = [
    ['2027-01-31T08:00:00Z', '2027-01-31T08:00:00.000Z'],
    ['2027-01-31t08:00:00z', '2027-01-31T08:00:00.000Z'],
    ['2027-01-31T08:00:00.25+02:00', '2027-01-31T06:00:00.250Z'],
    ['2027-01-31T23:30:00-01:30', '2027-02-01T01:00:00.000Z'],
    ['2028-02-29T00:00:00Z', '2028-02-29T00:00:00.000Z'],
  ]
  for (const [text, time] of times) t.equal(parseRfc3339(text), Date.parse(time), text)
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
    '2027-01-01T23:59:60Z',
    '2027-01-01T00:00:00+24:00',
    '2027-01-01T00:00:00Z\n',
    'Sun, 31 Jan 2027 08:00:00 GMT',
    '1801382400',
  ]
  for (const text of others) t.equal(parseRfc3339(text), undefined, text)
})
