/**
 * What a Dockerfile says, as a list of stages and their steps.
 *
 * @module
 */
import { readFileSync } from 'node:fs'
import {
  type Copy,
  DockerfileParser,
  From,
  type Instruction,
  JSONInstruction,
  PropertyInstruction,
} from 'dockerfile-ast'

/** One instruction: `RUN`, its flags without dashes, and its arguments. */
export interface Step {
  readonly keyword: string
  readonly flags: ReadonlyMap<string, string>
  /** The arguments as one text, continued lines joined. */
  readonly text: string
  /** The members of the exec form; absent in the shell form. */
  readonly exec?: readonly string[]
  /** Names and values, where the instruction has some; empty otherwise. */
  readonly properties: ReadonlyMap<string, string>
}

/** What stands between one FROM and the next. */
export interface Stage {
  readonly image: string
  readonly name: string
  readonly steps: readonly Step[]
}

/** Reads a Dockerfile; `ARG` values of its first lines are put in for their names in `FROM`. */
export function readDockerfile(path: string): readonly Stage[] {
  const stages: { image: string; name: string; steps: Step[] }[] = []
  const defaults = new Map<string, string>()
  for (const instruction of DockerfileParser.parse(readFileSync(path, 'utf8')).getInstructions()) {
    const stage = stages.at(-1)
    if (instruction instanceof From) {
      const image = String(instruction.getImage()).replace(
        /\$\{(\w+)\}/g,
        (_all, name) => defaults.get(name) ?? '',
      )
      stages.push({ image, name: instruction.getBuildStage() ?? '', steps: [] })
    } else if (stage === undefined) {
      const [name = '', value = ''] = textOf(instruction).split('=')
      defaults.set(name, value)
    } else {
      stage.steps.push(stepOf(instruction))
    }
  }
  return stages
}

function stepOf(instruction: Instruction): Step {
  const text = textOf(instruction)
  const list = instruction instanceof JSONInstruction ? instruction.getJSONStrings() : []
  const flags = 'getFlags' in instruction ? (instruction as Copy).getFlags() : []
  const named = instruction instanceof PropertyInstruction ? instruction.getProperties() : []
  return {
    keyword: instruction.getKeyword(),
    flags: new Map(flags.map((flag) => [flag.getName(), flag.getValue() ?? ''])),
    text,
    ...(list.length > 0 && { exec: list.map((member) => member.getJSONValue()) }),
    properties: new Map(named.map((property) => [property.getName(), property.getValue() ?? ''])),
  }
}

function textOf(instruction: Instruction): string {
  return instruction.getArgumentsContent() ?? ''
}
