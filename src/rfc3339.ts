/**
 * Reads a point in time as RFC 3339 (section 5.6) writes it, and nothing else that `Date.parse` would take.
 *
 * @module
 */

const dateTime =
  /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i

/** From here on, years have more digits than RFC 3339 can write. */
const YEAR_10000 = Date.UTC(10_000, 0)
/** And before this they have a sign. */
const YEAR_0 = Date.parse('0000-01-01T00:00:00Z')

/**
 * Parses `2027-01-31T08:00:00Z` or `2027-01-31T08:00:00.5+02:00`. The zone is required: a time without one
 * means something else on every machine. A leap second (section 5.7: the last one of a month in UTC) is the first
 * second of the next minute, since no clock here can show it. A time that in UTC has no year of four digits is
 * refused: nobody could write it down again.
 *
 * @param rounding - what becomes of a part of a millisecond: `down` leaves it out, `up` makes it a whole one
 * @returns epoch milliseconds, or nothing when the text is no such time
 */
export function parseRfc3339(text: string, rounding: 'down' | 'up' = 'down'): number | undefined {
  const [, date, , second, fraction = ''] = dateTime.exec(text) ?? []
  if (date === undefined) return undefined
  // `Date.parse` takes 30 February for 2 March: only a day that keeps its name exists.
  if (new Date(`${date}T00:00:00Z`).toJSON()?.startsWith(date) !== true) return undefined
  const isLeap = second === '60'
  // Of a long fraction `Date.parse` makes anything.
  const milliseconds = text.replace(fraction, fraction.slice(0, 4)).toUpperCase()
  const utterable = isLeap ? milliseconds.replace(':60', ':59') : milliseconds
  const partlyOver = rounding === 'up' && /[1-9]/.test(fraction.slice(4))
  const time = Date.parse(utterable) + (isLeap ? 1000 : 0) + (partlyOver ? 1 : 0)
  if (time < YEAR_0 || time >= YEAR_10000) return undefined
  return isLeap && !isFirstSecondOfMonth(time) ? undefined : time
}

function isFirstSecondOfMonth(time: number): boolean {
  return /-01T00:00:00/.test(new Date(time).toISOString())
}
