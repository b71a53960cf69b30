/** The ways in which operators and their tools bring a new version of a file to its place. */
import { existsSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Writes the first and then further versions of the file `name` in `directory`. */
export type WayOfWriting = (directory: string, name: string, text: string) => void

let versions = 0

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
  'swapped as a Kubernetes volume': (directory, name, text) => {
    // What the kubelet does: a new directory, a new link to it, renamed over `..data`; then the old one goes.
    mkdirSync(directory, { recursive: true })
    const version = `..${++versions}`
    mkdirSync(join(directory, version))
    writeFileSync(join(directory, version, name), text)
    symlinkSync(version, join(directory, '..data_tmp'))
    renameSync(join(directory, '..data_tmp'), join(directory, '..data'))
    rmSync(join(directory, `..${versions - 1}`), { recursive: true, force: true })
    // The links of the files themselves are made once and stay.
    if (!existsSync(join(directory, name))) symlinkSync(join('..data', name), join(directory, name))
  },
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
