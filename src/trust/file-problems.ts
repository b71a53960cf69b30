/**
 * What is wrong with the files that the settings name, whatever is wrong with the settings themselves.
 *
 * In: the files that can be relied on to be meant. Out: every problem of every one of them at once.
 *
 * @module
 */
import { loadCertificates } from '../certificates/certificate-files.ts'
import { certificateSets } from '../certificates/certificate-sets.ts'
import type { NamedFiles } from '../config/named-files.ts'
import type { Problem } from '../config/problem.ts'
import { accountsIn, keysIn, problemsOf, revocationsIn } from './file-sources.ts'

/** Looks into every file. Never rejects. */
export async function fileProblems(files: NamedFiles): Promise<readonly Problem[]> {
  const { keysDirectory, credentialsFile, revocationsFile } = files
  const sources = [
    ...(keysDirectory === undefined ? [] : [keysIn(keysDirectory)]),
    ...(credentialsFile === undefined ? [] : [accountsIn(credentialsFile)]),
    ...(revocationsFile === undefined ? [] : [revocationsIn(revocationsFile)]),
  ]
  const found = await Promise.all(sources.map(async (source) => problemsOf(source, await source.load())))
  const sets = certificateSets(files).map((set) => loadCertificates(set, Date.now()))
  const certificates = await Promise.all(sets)
  return [...found.flat(), ...certificates.flatMap((set) => (set.ok ? [] : set.problems))]
}
