/**
 * The pages lead where they say, and name commands and folders that are there.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'

const read = (path: string) => readFileSync(path, 'utf8')

/** Every page that git knows, or would know. */
const PAGES = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], {
  encoding: 'utf8',
})
  .stdout.split('\n')
  .filter((path) => path !== '' && existsSync(path))

/** A page without what stands in blocks of code. */
const prose = (path: string) => read(path).replaceAll(/^( *)(```+)[^\n]*\n[\s\S]*?^\1\2$/gm, '')

/** The anchors that GitHub gives the headings of a page. */
function anchors(path: string): Set<string> {
  const seen = new Map<string, number>()
  const found = new Set<string>()
  for (const [, heading = ''] of prose(path).matchAll(/^#{1,6} +(.+?) *#*$/gm)) {
    const text = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
    const slug = text.replaceAll(/[^\p{L}\p{N}\p{M}\p{Pc} -]/gu, '').replaceAll(' ', '-')
    const times = seen.get(slug) ?? 0
    seen.set(slug, times + 1)
    found.add(times === 0 ? slug : `${slug}-${times}`)
  }
  for (const [, id = ''] of prose(path).matchAll(/<a (?:id|name)="([^"]+)"/g)) found.add(id)
  return found
}

/** What a page links to, images included. */
function targets(path: string): string[] {
  const text = prose(path).replaceAll(/`[^`\n]*`/g, '')
  const inline = [...text.matchAll(/\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g)]
  const defined = [...text.matchAll(/^ {0,3}\[[^\]]+\]: +(\S+)/gm)]
  return [...inline, ...defined].map(([, target = '']) => target)
}

t.test('every relative link leads to a file, and to a heading in it', { skip: noGit() }, async (t) => {
  let links = 0
  for (const page of PAGES) {
    for (const target of targets(page)) {
      if (/^(?:[a-z][a-z0-9+.-]*:|\/\/)/i.test(target)) {
        t.match(target, /^(?:https|mailto):/, `${page}: ${target}`)
        continue
      }
      links++
      const [path = '', anchor] = decodeURIComponent(target).split('#')
      const file = path === '' ? page : join(dirname(page), path)
      if (!existsSync(file)) t.fail(`${page}: ${target} is not there`)
      else if (anchor !== undefined && file.endsWith('.md'))
        t.ok(anchors(file).has(anchor), `${page}: ${target}`)
    }
  }
  t.ok(PAGES.length >= 10 && links > 100, `${links} links in ${PAGES.length} pages`)
})

t.test('every guide is listed in the index, and the README leads there', async (t) => {
  const listed = new Set(targets('docs/README.md'))
  for (const name of readdirSync('docs')) {
    if (/\.(?:md|yaml)$/.test(name) && name !== 'README.md') t.ok(listed.has(name), name)
  }
  t.ok(targets('README.md').includes('docs/README.md'))
})

t.test('every npm command that a page names is there', async (t) => {
  const { scripts } = JSON.parse(read('package.json'))
  let named = 0
  for (const page of PAGES.filter((page) => page !== 'CHANGELOG.md')) {
    for (const [, script = ''] of read(page).matchAll(
      /npm (?:run (?:--silent )?)?(start|test|(?<=run )[a-z][a-z:]*)/g,
    )) {
      named++
      t.ok(scripts[script], `${page}: ${script}`)
    }
  }
  t.ok(named > 10)
})

t.test('CONTRIBUTING.md knows what is in the sources, and what the tests and scripts are', async (t) => {
  const [, section = ''] = read('CONTRIBUTING.md').split('## Layout')
  const layout = section.split('\n## ')[0] ?? ''
  const named = new Set([...layout.matchAll(/\b(?:src|scripts)\/[\w.-]+/g)].map(([path]) => path))
  for (const [path] of layout.matchAll(/^\w+\/[\w.-]*/gm)) t.ok(existsSync(path), path)
  const there = ['src', 'scripts'].flatMap((folder) => readdirSync(folder).map((name) => `${folder}/${name}`))
  t.strictSame([...named].sort(), there.sort())
  for (const { name } of readdirSync('test', { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  )) {
    const mirrored = ['.', 'src'].some((folder) => existsSync(join(folder, name))) && name !== 'docs'
    if (!mirrored) t.ok(layout.includes(`\ntest/${name}/ `), `test/${name}/`)
  }
})

t.test('no page says what is to come', async (t) => {
  for (const page of PAGES)
    t.notMatch(prose(page), /\b(?:TODO|TBD|FIXME|coming soon|not (?:yet )?implemented)\b/i, page)
})

function noGit(): string | false {
  return PAGES.length > 0 ? false : 'needs git, and a git checkout'
}
