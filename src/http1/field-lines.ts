/**
 * Field lines: the headers and trailers of a message, and the characters that names and values may hold.
 *
 * In: text decoded as Latin-1, so that each character is one byte. Out: names and values alternating, as they stood on
 * the wire but for the white space around values; or a fault for anything that two parsers could read differently: a
 * folded line, space before the colon, a line feed or a carriage return alone (RFC 9112, sections 2.2 and 5).
 *
 * @module
 */
import { MessageFault } from './message-fault.ts'

/** No lines at all. */
export const NO_LINES: readonly string[] = []

/**
 * Splits field lines from `start` on into names and values alternating.
 *
 * @throws MessageFault at the first line that is none, or one too many
 */
export function parseFieldLines(text: string, start: number, maxLines: number): string[] {
  const lines: string[] = []
  for (let at = start; at < text.length; ) {
    let end = text.indexOf('\r\n', at)
    if (end < 0) end = text.length
    const colon = text.indexOf(':', at)
    if (colon <= at || colon >= end) throw new MessageFault('field line without a name')
    if (lines.length === 2 * maxLines) throw new MessageFault('too many field lines', true)
    const name = text.slice(at, colon)
    const value = trimmed(text, colon + 1, end)
    // A folded line begins with white space, which no name may hold.
    if (!isToken(name) || !isFieldValue(value)) throw new MessageFault('bad field line')
    lines.push(name, value)
    at = end + 2
  }
  return lines
}

/** What a line can begin with, and the first half of its end. */
const BEGINNING = /^[!#$%&'*+.^_`|~\w-]*(?:(?<=.):[\t\x20-\x7e\x80-\xff]*)?\r?$/
/** A longer beginning is not looked at again with each byte that follows. */
const MOST_LOOKED_AT = 256

/**
 * Looks at lines that have not come whole: whoever has sent what can be no line waits for an answer, not for its end.
 *
 * @param from - where a line begins
 * @param scanned - where bytes begin that have not been looked at before
 * @returns where the line begins that is not whole
 * @throws MessageFault at what can be no line, whatever follows
 */
export function checkFieldLines(data: Buffer, from: number, scanned: number): number {
  const fresh = Math.max(from, scanned - 1)
  const found = data.subarray(fresh).lastIndexOf('\r\n', undefined, 'latin1')
  const whole = fresh + found
  const begins = found < 0 ? from : whole + 2
  if (begins > from) parseFieldLines(data.toString('latin1', from, whole), 0, Number.POSITIVE_INFINITY)
  rejectBareLineFeed(data, Math.max(begins, fresh))
  if (data.length - begins <= MOST_LOOKED_AT && !BEGINNING.test(data.toString('latin1', begins)))
    throw new MessageFault('bad field line')
  return begins
}

/** Renders names and values alternating, each line with its end. */
export function fieldLines(rawHeaders: readonly string[]): string {
  let lines = ''
  for (let at = 0; at < rawHeaders.length; at += 2) lines += `${rawHeaders[at]}: ${rawHeaders[at + 1]}\r\n`
  return lines
}

/** The text between `start` and `end` without spaces and tabs at its ends. */
function trimmed(text: string, start: number, end: number): string {
  let from = start
  let to = end
  while (from < to && isBlank(text.charCodeAt(from))) from++
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--
  return text.slice(from, to)
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09
}

/** `tchar` of RFC 9110, section 5.6.2. */
const TOKEN = new Uint8Array(256)
for (const character of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  TOKEN[character.charCodeAt(0)] = 1
}

function isToken(text: string): boolean {
  for (let at = 0; at < text.length; at++) if (TOKEN[text.charCodeAt(at)] !== 1) return false
  return true
}

/** Field values and reason phrases: anything but controls; the tab is white space. */
export function isFieldValue(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if ((code < 0x20 && code !== 0x09) || code === 0x7f) return false
  }
  return true
}

/**
 * Some parsers end a line at a line feed alone. Ours would wait for an end that has come already for others.
 *
 * @throws MessageFault if there is such a line feed at `from` or behind
 */
export function rejectBareLineFeed(data: Buffer, from: number): void {
  for (let at = data.indexOf(0x0a, from); at >= 0; at = data.indexOf(0x0a, at + 1)) {
    if (data[at - 1] !== 0x0d) throw new MessageFault('bare line feed')
  }
}
