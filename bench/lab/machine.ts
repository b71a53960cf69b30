/**
 * On what and with what was measured.
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { cpus, release, totalmem } from 'node:os'
import { join } from 'node:path'

/** What a figure depends on beside the code. */
export interface Machine {
  readonly cpu: string
  readonly cores: number
  readonly memoryGigabytes: number
  readonly kernel: string
  /** Program or package, and its version. */
  readonly versions: Readonly<Record<string, string>>
  /** The commit that was measured, with a `+` where files had been changed since. */
  readonly commit: string
  /** Day of the run, in UTC. */
  readonly date: string
}

/** Whether a program is on the path. */
export function hasProgram(name: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${name}`], { stdio: 'ignore' }).status === 0
}

const root = join(import.meta.dirname, '../..')

/** Looks at this machine; `now` is epoch milliseconds. */
export function describeMachine(now: () => number): Machine {
  const [first, ...others] = cpus()
  return {
    cpu: first?.model.trim() ?? 'unknown',
    cores: others.length + 1,
    memoryGigabytes: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    versions: versions(),
    commit: said('git', ['-C', root, 'describe', '--always', '--dirty=+'], /\S+/) ?? 'unknown',
    date: new Date(now()).toISOString().slice(0, 10),
  }
}

function versions(): Record<string, string> {
  const found: Record<string, string | undefined> = {
    node: process.versions.node,
    nginx: said('nginx', ['-v'], /nginx\/(\S+)/),
    haproxy: said('haproxy', ['-v'], /version (\S+)/),
    wrk: said('wrk', ['-v'], /wrk (?:debian\/)?(\S+)/),
    'http-proxy': installed('node_modules/http-proxy'),
    fastify: installed('bench/node_modules/fastify'),
    '@fastify/http-proxy': installed('bench/node_modules/@fastify/http-proxy'),
    '@fastify/jwt': installed('bench/node_modules/@fastify/jwt'),
  }
  return Object.fromEntries(
    Object.entries(found).flatMap(([name, version]) => (version ? [[name, version]] : [])),
  )
}

function said(command: string, args: readonly string[], pattern: RegExp): string | undefined {
  const { stdout, stderr } = spawnSync(command, args, { encoding: 'utf8' })
  const match = pattern.exec(`${stdout ?? ''}${stderr ?? ''}`)
  return match?.[1] ?? match?.[0]
}

function installed(path: string): string | undefined {
  const file = join(root, path, 'package.json')
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')).version : undefined
}
