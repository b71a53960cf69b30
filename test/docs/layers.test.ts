/** Folders are layers: imports follow the order of the table in `docs/architecture.md`. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import t from 'tap'

const [, table = ''] = readFileSync('docs/architecture.md', 'utf8').split('| folder | contains |')
/** The row of each folder, and of each file beside them. */
const rowOf = new Map(
  table
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .flatMap((line, row) =>
      [...(line.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map((match) => [match[1], row]),
    ),
)
/** `token/verify.ts`: `token/`; `app.ts` is itself. */
const unitOf = (path: string) => path.replace(/\/.*/, '/')

t.test('a file of src imports only from its own row of the table and the rows below', async (t) => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.ts'),
  )
  for (const file of files) {
    t.ok(rowOf.has(unitOf(file)), `${file} is in the table`)
    const imports = readFileSync(join('src', file), 'utf8').matchAll(/(?:from |import\()'(\.[^']+\.ts)'/g)
    for (const [, path = ''] of imports) {
      const imported = normalize(join(dirname(file), path))
      const isBelow = Number(rowOf.get(unitOf(imported))) >= Number(rowOf.get(unitOf(file)))
      if (!isBelow) t.fail(`${file} imports ${imported}`)
    }
  }
  t.ok(files.length > 50)
})
