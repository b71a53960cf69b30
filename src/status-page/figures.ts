/**
 * Numbers and times the way people read them.
 *
 * These functions run in the sidecar for the page's first sight and in the browser from then on: each uses nothing but
 * its arguments and the other functions that `page.ts` sends along.
 *
 * @module
 */

/** Makes any text safe between tags and in quoted attributes. */
export function escapeText(value: unknown): string {
  return String(value)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;')
}

/** `1,234,567`. */
export function showCount(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

/** `0`, `0.04`, `3.2`, `1,234`: a rate or another amount, in about three digits. */
export function showAmount(value: number | null): string {
  if (value === null) return '–'
  if (value >= 100) return showCount(value)
  if (value === 0) return '0'
  if (value >= 10) return String(Number(value.toFixed(1)))
  return value >= 0.01 ? String(Number(value.toFixed(2))) : '< 0.01'
}

/** `0 %`, `0.03 %`, `12.5 %`, `100 %`: never `100 %` of what is not all, nor `0 %` of what is something. */
export function showShare(value: number | null): string {
  if (value === null) return '–'
  if (value === 0 || value === 1) return `${value * 100} %`
  const percent = value * 100
  if (percent < 0.01) return '< 0.01 %'
  if (percent > 99.99) return '> 99.99 %'
  return `${percent < 1 || percent > 99 ? percent.toFixed(2) : percent.toFixed(1)} %`
}

/** `850 µs`, `1.2 ms`, `340 ms`, `2.5 s`: how long something takes. */
export function showLatency(seconds: number | null): string {
  if (seconds === null) return '–'
  if (seconds === 0) return '0 ms'
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`
  return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`
}

/** `12 s`, `4 min`, `3 h 5 min`, `12 d 4 h`: an age. */
export function showAge(seconds: number): string {
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  const days = Math.floor(hours / 24)
  if (minutes < 1) return `${Math.floor(seconds)} s`
  if (hours < 1) return `${minutes} min`
  if (days < 1) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
  return hours % 24 === 0 || days > 99 ? `${days} d` : `${days} d ${hours % 24} h`
}

/** `71 MB`. */
export function showMegabytes(bytes: number): string {
  return `${showCount(bytes / 1e6)} MB`
}

/** `20:57:35 UTC` of an RFC 3339 time in UTC: clocks of logs, not of whoever looks. */
export function showClock(time: string): string {
  return `${time.slice(11, 19)} UTC`
}
