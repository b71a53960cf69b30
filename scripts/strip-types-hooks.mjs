/**
 * Replaces types by blanks, so that positions stay. Keeps each result by the hash of its source:
 * the compiler takes 0.7 s to load, and every test file is a process.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'

/** A reinstall, with another compiler, removes it. */
const CACHE = new URL('../node_modules/.cache/storage-auth-sidecar/stripped/', import.meta.url)

export async function load(url, context, nextLoad) {
  if (!url.endsWith('.ts')) {
    return nextLoad(url, context)
  }
  const { source } = await nextLoad(url, { ...context, format: 'module' })
  const stripped = await strip(String(source))
  return { format: 'module', shortCircuit: true, source: `${stripped}\n//# sourceURL=${url}` }
}

async function strip(source) {
  const file = new URL(`${createHash('sha256').update(source).digest('hex')}.js`, CACHE)
  try {
    return readFileSync(file, 'utf8')
  } catch {
    const { default: blankSpace } = await import('ts-blank-space')
    const stripped = blankSpace(source)
    mkdirSync(CACHE, { recursive: true })
    const partial = new URL(`${file.href}.${process.pid}`)
    writeFileSync(partial, stripped)
    renameSync(partial, file) // other processes read only complete files
    return stripped
  }
}
