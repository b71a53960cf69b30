/**
 * Does what a Dockerfile says, in directories instead of layers.
 *
 * In: the stages of a Dockerfile and the files of its build context. Out: the root directory of the last stage and
 * how its process is to be started. Images that are built on are empty: what of them is needed is the Node that
 * runs this, in place of theirs.
 *
 * @module
 */
import { spawn } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, statSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Stage, Step } from './dockerfile.ts'

/** A stage that has been built. */
export interface BuiltStage {
  readonly root: string
  readonly workdir: string
  readonly env: Readonly<Record<string, string>>
  /** The last step of each keyword. */
  readonly last: ReadonlyMap<string, Step>
}

/** A step that failed, and what it said. */
export class StepFailed extends Error {
  override readonly name = 'StepFailed'
}

/** Where the images that we build on have Node. */
export const NODE = '/nodejs/bin/node'

/** Builds all stages; the last is the image. `env`: the environment of `RUN`, beside what `ENV` sets. */
export async function buildImage(
  stages: readonly Stage[],
  {
    context,
    into,
    env,
  }: { readonly context: string; readonly into: string; readonly env: Readonly<Record<string, string>> },
): Promise<BuiltStage> {
  const built = new Map<string, Promise<BuiltStage>>()
  let image: Promise<BuiltStage> | undefined
  // At the same time, like BuildKit: a stage waits when it copies from another.
  for (const [index, stage] of stages.entries()) {
    const root = join(into, `stage-${index}`)
    mkdirSync(root)
    image = buildStage(stage, { root, context, env, built })
    built.set(stage.name, image)
  }
  // All of them, so that none is at work any more when another has failed.
  await Promise.allSettled(built.values())
  if (image === undefined) throw new Error('the Dockerfile has no stage')
  return image
}

async function buildStage(
  stage: Stage,
  on: {
    readonly root: string
    readonly context: string
    readonly env: Readonly<Record<string, string>>
    readonly built: ReadonlyMap<string, Promise<BuiltStage>>
  },
): Promise<BuiltStage> {
  let workdir = '/'
  const env: Record<string, string> = {}
  const last = new Map<string, Step>()
  for (const step of stage.steps) {
    last.set(step.keyword, step)
    if (step.keyword === 'WORKDIR') {
      workdir = step.text
      mkdirSync(join(on.root, workdir), { recursive: true })
    } else if (step.keyword === 'ENV') {
      Object.assign(env, Object.fromEntries(step.properties))
    } else if (step.keyword === 'COPY') {
      const from = step.flags.get('from')
      const source = from === undefined ? on.context : (await on.built.get(from))?.root
      if (source === undefined) throw new Error(`COPY from a stage that there is not: ${from}`)
      copy(step, source, join(on.root, workdir))
    } else if (step.keyword === 'RUN') {
      await run(step, { root: on.root, cwd: join(on.root, workdir), env: { ...on.env, ...env } })
    } else if (!WITHOUT_EFFECT.has(step.keyword)) {
      throw new Error(`this test does not know what ${step.keyword} does`)
    }
  }
  return { root: on.root, workdir, env, last }
}

/** They are about the process that is started later, or about the image as a whole. */
const WITHOUT_EFFECT = new Set([
  'ARG',
  'CMD',
  'ENTRYPOINT',
  'EXPOSE',
  'HEALTHCHECK',
  'LABEL',
  'STOPSIGNAL',
  'USER',
])

/** As Docker does it: a directory's contents are copied, not the directory. */
function copy(step: Step, source: string, workdir: string): void {
  const paths = step.text.split(/\s+/)
  const target = join(workdir, paths.pop() ?? '')
  for (const path of paths) {
    const from = join(source, path)
    const to = statSync(from).isDirectory() ? target : join(target, path.replace(/.*\//, ''))
    cpSync(from, to, { recursive: true, verbatimSymlinks: true })
    const mode = step.flags.get('chmod')
    if (mode !== undefined) chmodSync(to, Number.parseInt(mode, 8))
  }
}

async function run(
  { exec, text: script }: Step,
  {
    root,
    cwd,
    env,
  }: { readonly root: string; readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): Promise<void> {
  const [command = '', ...args] = exec === undefined ? ['/bin/sh', '-c', script] : insideOf(root, exec)
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  // By way of `env`: tap would add its loaders to the environment that is given here.
  const child = spawn('/usr/bin/env', ['-i', ...variables, command, ...args], {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  const [code, stdout, stderr] = await Promise.all([ended, text(child.stdout), text(child.stderr)])
  if (code !== 0) throw new StepFailed(`RUN ${script} ended with ${code}: ${(stdout + stderr).slice(-4000)}`)
}

/** An exec form as it is run here: our Node for the image's, and paths of the image below its root. */
export function insideOf(root: string, exec: readonly string[]): string[] {
  return exec.map((member) => {
    if (member === NODE) return process.execPath
    return isAbsolute(member) ? join(root, member) : member
  })
}
