/** The ways in which operators and their tools bring a new version of a file to its place. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'

/** Writes the first and then further versions of the file `name` in `directory`. */
export type WayOfWriting = (directory: string, name: string, text: string) => void

let versions = 0

/**
 * What the kubelet does:
 * a new directory of files, a new link to it, renamed over `..data`; then the old one goes.
 */
export function swapVolume(directory: string, files: Readonly<Record<string, string>>): void {
  const version = `..${++versions}`
  const data = join(directory, '..data')
  const before = existsSync(data) ? realpathSync(data) : undefined
  mkdirSync(join(directory, version), { recursive: true })
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(directory, version, name), text, { mode: 0o600 })
  }
  symlinkSync(version, `${data}_tmp`)
  renameSync(`${data}_tmp`, data)
  // The links of the files themselves stay as long as the files.
  for (const name of Object.keys(files)) {
    if (!existsSync(join(directory, name))) {
      symlinkSync(join('..data', name), join(directory, name))
    }
  }
  for (const name of readdirSync(directory)) {
    if (!name.startsWith('..') && !(name in files)) {
      rmSync(join(directory, name))
    }
  }
  if (before !== undefined) {
    rmSync(before, { recursive: true })
  }
}

/** By what is done, as it reads in a test's name. */
export const WAYS_OF_WRITING = {
  'rewritten in place': (directory, name, text) => {
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, name), text)
  },
  'renamed over': (directory, name, text) => {
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, `.${name}.new`), text)
    renameSync(join(directory, `.${name}.new`), join(directory, name))
  },
  'swapped as a Kubernetes volume': (directory, name, text) => swapVolume(directory, { [name]: text }),
  'removed with its directory and made again': (directory, name, text) => {
    rmSync(directory, { recursive: true, force: true })
    mkdirSync(directory, { recursive: true })
    writeFileSync(join(directory, name), text)
  },
  'in a directory renamed over the old one': (directory, name, text) => {
    const next = `${directory}.next`
    mkdirSync(next, { recursive: true })
    writeFileSync(join(next, name), text)
    rmSync(directory, { recursive: true, force: true })
    renameSync(next, directory)
  },
} satisfies Readonly<Record<string, WayOfWriting>>
