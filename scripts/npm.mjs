/**
 * Which npm to run from a script.
 *
 * @module
 */

/** The npm that runs this script, else the one on the path: the program and its first arguments. */
export function npm() {
  const cli = process.env.npm_execpath ?? ''
  return /npm-cli\.c?js$/.test(cli) ? [process.execPath, cli] : ['npm']
}
