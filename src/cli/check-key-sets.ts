/** `config check --fetch`: fetches each key set once. In: settings. Out: what is wrong with each set, or how many keys it has. */
import { type Config, keySetsOf } from '../config/config.ts'
import { fileProblem, type Problem } from '../config/problem.ts'
import { fetchJwks, importKeys } from '../keys/key-set.ts'
import { certificateSets, loadCertificates } from '../reload/certificates.ts'

/** A set whose CA file cannot be used is skipped: that is a problem of the files. Never rejects. */
export async function checkKeySets(config: Config) {
  const problems: Problem[] = []
  const notes: string[] = []
  await Promise.all(
    keySetsOf(config).map(async ({ setting, ...source }) => {
      const path = `${setting}.jwksUrl`
      const report = (texts: readonly string[]) =>
        void problems.push(...texts.map((text) => fileProblem(path, `the JWK Set ${text}`)))
      const ca = certificateSets(config).find(({ name }) => name === `issuer:${setting}`)
      const certificates = ca && (await loadCertificates(ca, Date.now()))
      if (certificates?.ok === false) return
      const secureContext = certificates && (() => certificates.value.context)
      const fetched = await fetchJwks({ ...source, secureContext })
      if (!fetched.ok) return report(fetched.problems)
      const { value, warnings } = await importKeys(fetched.value, source.algorithms, 0)
      if (value.keys.length === 0) return report(warnings)
      notes.push(...[`${value.keys.length} keys can be used`, ...warnings].map((note) => `${path}: ${note}`))
    }),
  )
  return { problems, notes }
}
