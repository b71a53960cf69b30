/** Compares docs/architecture.md with src: imports follow its layers, and the files that it names exist. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import t from 'tap'
import { codeIn, tableUnder } from '../support/markdown.ts'

const read = (path: string) => readFileSync(path, 'utf8')

const PAGE = 'docs/architecture.md'

/** The row of each folder, and of each file beside them. */
const rowOf = new Map<string, number>()
for (const [row, { folder }] of tableUnder(PAGE, '## Folders').entries()) {
  for (const unit of codeIn(folder)) {
    rowOf.set(unit, row)
  }
}

/** `token/verify.ts`: `token/`; `app.ts` is itself. */
const unitOf = (path: string) => path.replace(/\/.*/, '/')

const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'))

t.test('a file of src imports only from its own row of the table and the rows below', async (t) => {
  for (const file of files) {
    t.ok(rowOf.has(unitOf(file)), `${file} is in the table`)
    const imports = read(join('src', file)).matchAll(/(?:from |import\()'(\.[^']+\.ts)'/g)
    for (const [, path = ''] of imports) {
      const imported = normalize(join(dirname(file), path))
      const isBelow = Number(rowOf.get(unitOf(imported))) >= Number(rowOf.get(unitOf(file)))
      if (!isBelow) {
        t.fail(`${file} imports ${imported}`)
      }
    }
  }
  t.ok(files.length > 50)
})

t.test('the upstream client stands alone', async (t) => {
  const own = files.filter((file) => file.startsWith('upstream/'))
  for (const file of own) {
    const folders = [...read(join('src', file)).matchAll(/(?:from |import\()'\.\.\/([^/']+)/g)]
    for (const [, folder = ''] of folders) {
      t.ok(['http', 'base'].includes(folder), `${file} imports ${folder}/`)
    }
  }
  t.ok(own.length > 5)
})

t.test('comments of src and docs/architecture.md name files and identifiers that exist', async (t) => {
  const comment = /\/\*\*[\s\S]*?\*\/|(?<=^|\s)\/\/ .*/g
  const sources = files.map((file) => read(join('src', file)))
  const exists = new Set(sources.join('\n').replace(comment, '').match(/#?\w+/g))
  const own = sources.filter((_, at) => files[at] !== 'http/node-http.ts') // it names functions of Node
  const comments = own.flatMap((source) => source.match(comment) ?? [])
  const page = read(PAGE)
  const text = [page, ...comments].join('\n')
  const names = text.match(/(?<=`)[a-z]+[A-Z]\w*(?=`)|(?<=[\s`.])#[a-z]\w*/g) ?? []
  const quotedPaths = text.match(/(?<=`)[\w/-]+\.ts(?=`)/g) ?? []
  const drawnPaths = page.match(/(?<= )[\w/-]+\.ts(?=[ ,\n])/g) ?? []
  const paths = [...quotedPaths, ...drawnPaths]
  const isMissing = (path: string) => !files.some((file) => `/${file}`.endsWith(`/${path}`))
  t.strictSame([...names.filter((name) => !exists.has(name)), ...paths.filter(isMissing)], [])
  t.ok(names.length > 100 && paths.length > 100)
})
