/**
 * The static files of the status page: the page itself, and the chart library as its package ships it.
 */
import { readFile } from 'node:fs/promises'

const SCRIPT = 'text/javascript; charset=utf-8'
const STYLE = 'text/css; charset=utf-8'

/** Where the admin listener serves each file, its media type, and its module specifier. */
const FILES = [
  ['/', 'text/html; charset=utf-8', './page.html'],
  ['/page.js', SCRIPT, './page.js'],
  ['/page.css', STYLE, './page.css'],
  ['/uplot.js', SCRIPT, 'uplot/dist/uPlot.iife.min.js'],
  ['/uplot.css', STYLE, 'uplot/dist/uPlot.min.css'],
] as const

/** Files are read on request: most status pages are never opened. */
export const statusPageFiles = FILES.map(([path, type, specifier]) => ({
  path,
  type,
  read: () => readFile(new URL(import.meta.resolve(specifier))),
}))
