/**
 * Reads a point in time as RFC 3339 (section 5.6) writes it, and nothing else that `Date.parse` would take.
 *
 * @module
 */

const dateTime =
  /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i

/**
 * Parses `2027-01-31T08:00:00Z` or `2027-01-31T08:00:00.5+02:00`. The zone is required: a time without one
 * means something else on every machine. Leap seconds are refused, because no clock here can show one.
 *
 * @returns epoch milliseconds, or nothing when the text is no such time
 */
export function parseRfc3339(text: string): number | undefined {
  const date = dateTime.exec(text)?.[1]
  if (date === undefined) return undefined
  // `Date.parse` takes 30 February for 2 March: only a day that keeps its name exists.
  if (new Date(`${date}T00:00:00Z`).toJSON()?.startsWith(date) !== true) return undefined
  return Date.parse(text.toUpperCase())
}
