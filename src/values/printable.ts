/** Escapes what controls a terminal, breaks a line or reverses text (CVE-2021-42574), for logs and terminals. */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
