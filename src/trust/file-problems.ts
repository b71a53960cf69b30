/**
 * What is wrong with the files that the settings name, whatever is wrong with the settings themselves.
 *
 * In: the files that can be relied on to be meant. Out: every problem of every one of them at once.
 *
 * @module
 */
import type { NamedFiles } from '../config/named-files.ts'
import type { Problem } from '../config/problem.ts'
import { accountsIn, certificateProblems, keysIn, problemsOf, revocationsIn } from './file-sources.ts'

/** Looks into every file. Never rejects. */
export async function fileProblems(files: NamedFiles): Promise<readonly Problem[]> {
  const { keysDirectory, credentialsFile, revocationsFile, upstreams } = files
  const sources = [
    ...(keysDirectory === undefined ? [] : [keysIn(keysDirectory)]),
    ...(credentialsFile === undefined ? [] : [accountsIn(credentialsFile)]),
    ...(revocationsFile === undefined ? [] : [revocationsIn(revocationsFile)]),
  ]
  const found = await Promise.all(sources.map(async (source) => problemsOf(source, await source.load())))
  return [...found.flat(), ...certificateProblems(upstreams)]
}
