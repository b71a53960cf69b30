/** Every link of a page leads to a file, and to a heading in it. */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'

const read = (path: string) => readFileSync(path, 'utf8')

/** Markdown files that git tracks, or would. */
const tracked = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'])
const PAGES = String(tracked.stdout ?? '')
  .split('\n')
  .filter((path) => path !== '' && existsSync(path))

/** A page without its code blocks. */
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

/** Targets of links and images. */
function targets(path: string): string[] {
  const text = prose(path).replaceAll(/`[^`\n]*`/g, '')
  const inline = [...text.matchAll(/\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g)]
  const defined = [...text.matchAll(/^ {0,3}\[[^\]]+\]: +(\S+)/gm)]
  return [...inline, ...defined].map(([, target = '']) => target)
}

t.test('every relative link has an existing file and heading', { skip: noGit() }, async (t) => {
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
      if (!existsSync(file)) t.fail(`${page}: ${target} is missing`)
      else if (anchor !== undefined && file.endsWith('.md'))
        t.ok(anchors(file).has(anchor), `${page}: ${target}`)
    }
  }
  t.ok(PAGES.length >= 10 && links > 100, `${links} links in ${PAGES.length} pages`)
})

t.test('every file named by a page exists', async (t) => {
  const roots = ['', 'src/', 'docs/']
  for (const page of PAGES.filter((path) => path !== 'CHANGELOG.md')) {
    for (const [, path = ''] of read(page).matchAll(/(?<![\w./-])((?:[\w-]+\/)+[\w.-]+\.(?:test\.)?ts)\b/g))
      t.ok(
        roots.some((root) => existsSync(root + path)),
        `${page}: ${path}`,
      )
  }
})

t.test('every guide is listed in the index, which the README links', async (t) => {
  const listed = new Set(targets('docs/README.md'))
  for (const name of readdirSync('docs')) {
    if (/\.(?:md|yaml)$/.test(name) && name !== 'README.md') t.ok(listed.has(name), name)
  }
  t.ok(targets('README.md').includes('docs/README.md'))
})

function noGit(): string | false {
  return PAGES.length > 0 ? false : 'needs git, and a git checkout'
}
