/**
 * Whether this version of Node has the fixes that a server on the open network should have.
 *
 * What we rely on is tested from Node 20 on. But older releases have known holes in their HTTP parser and their TLS,
 * and a line that is no longer maintained gets no fixes at all.
 *
 * @module
 */

/** The first release of each maintained line that has every fix known when this was written. */
const FLOORS: Readonly<Record<number, readonly [minor: number, patch: number]>> = {
  22: [23, 4],
  24: [22, 1],
  26: [12, 1],
}
const NEWEST = 26

/** What to tell whoever runs this version, such as `20.18.0`; nothing when it is as it should be. */
export function nodeFloorWarnings(version: string): string[] {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number)
  if (major > NEWEST) return []
  const floor = FLOORS[major]
  if (floor === undefined)
    return [`Node ${version} is of a line without security fixes: run ${floors()} or newer`]
  const [floorMinor, floorPatch] = floor
  const has = minor > floorMinor || (minor === floorMinor && patch >= floorPatch)
  return has ? [] : [`Node ${version} lacks security fixes: run ${major}.${floor.join('.')} or newer`]
}

function floors(): string {
  return Object.entries(FLOORS)
    .map(([major, rest]) => [major, ...rest].join('.'))
    .join(', ')
}
