/**
 * The static files of the status page: the page itself, and the chart library as its package ships it.
 */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'

export interface StatusPageFile {
  /** Where the admin listener serves it. */
  readonly path: string
  /** Its media type. */
  readonly type: string
  readonly read: () => Promise<Buffer>
}

const SCRIPT = 'text/javascript; charset=utf-8'
const STYLE = 'text/css; charset=utf-8'

/** Lists the files. Each is read when it is first asked for: most sidecars are never looked at. */
export function statusPageFiles(): readonly StatusPageFile[] {
  const { resolve } = createRequire(import.meta.url)
  const file = (path: string, type: string, location: () => string | URL): StatusPageFile => {
    let content: Promise<Buffer> | undefined
    return {
      path,
      type,
      read() {
        content ??= readFile(location())
        return content
      },
    }
  }
  const own = (name: string) => () => new URL(name, import.meta.url)
  return [
    file('/', 'text/html; charset=utf-8', own('./page.html')),
    file('/page.js', SCRIPT, own('./page.js')),
    file('/page.css', STYLE, own('./page.css')),
    file('/uplot.js', SCRIPT, () => resolve('uplot/dist/uPlot.iife.min.js')),
    file('/uplot.css', STYLE, () => resolve('uplot/dist/uPlot.min.css')),
  ]
}
