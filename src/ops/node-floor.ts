/**
 * Warns about versions of Node without the security fixes that a server on an open network needs.
 */

/** The first release of each maintained line that has every fix known when this was written. */
const FLOORS: Readonly<Record<number, readonly [minor: number, patch: number]>> = {
  22: [23, 4],
  24: [22, 1],
  26: [12, 1],
}
const NEWEST = 26

/** The warnings for a version such as `20.18.0`; none when it has the fixes. */
export function nodeFloorWarnings(version: string): string[] {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number)
  if (major > NEWEST) return []
  const floor = FLOORS[major]
  if (floor === undefined) {
    const floors = Object.entries(FLOORS).map(([line, rest]) => [line, ...rest].join('.'))
    return [`Node ${version} is of a line without security fixes: run ${floors.join(', ')} or newer`]
  }
  const [floorMinor, floorPatch] = floor
  const isFixed = minor > floorMinor || (minor === floorMinor && patch >= floorPatch)
  return isFixed ? [] : [`Node ${version} lacks security fixes: run ${major}.${floor.join('.')} or newer`]
}
