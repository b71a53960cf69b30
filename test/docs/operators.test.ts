import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { configCommand } from '../../src/cli/config.ts'
import { credentialsCommand } from '../../src/cli/credentials.ts'
import { keysCommand } from '../../src/cli/keys.ts'
import { parseRevocations } from '../../src/token/revocations-file.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { runCommand } from '../support/run-command.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const GUIDES = ['docs/keys-and-rotation.md', 'docs/credentials-and-revocations.md', 'docs/metrics.md']
const NOW = Date.UTC(2026, 10, 20, 12)

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

/** The fenced blocks of one language in a part of a document, without their indentation. */
function blocks(text: string, language: string): string[] {
  return [...text.matchAll(new RegExp(`^( *)\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\``, 'gm'))].map(
    ([, indent = '', block = '']) => block.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  )
}

/** The commands under a heading, as arguments. */
function commandsUnder(path: string, heading: string): string[][] {
  const [, section = ''] = read(path).split(`\n## ${heading}\n`)
  const lines = blocks(section.split('\n## ', 1)[0] ?? '', 'sh').flatMap((block) => block.trim().split('\n'))
  return lines.map((line) => {
    const [program, ...args] = line.split(' ')
    if (program !== 'storage-auth-sidecar') throw new Error(`what is ${line}?`)
    return args
  })
}

/** Runs a command with the files of a document in a directory of the test, at a time in epoch milliseconds. */
async function run(t: Test, directory: string, args: readonly string[], at = NOW, stdin = '') {
  const [group, ...words] = args
  const rest = words.map((word) =>
    /^(?:keys|credentials\.yaml|postgres\.url)$/.test(word) ? join(directory, word) : word,
  )
  const now = () => at
  const outcome =
    group === 'keys'
      ? await runCommand((io) => keysCommand(io, { now }), rest)
      : await runCommand((io) => credentialsCommand(io, { now }), rest, { stdin })
  t.comment(args.join(' '))
  return outcome
}

t.test('the steps of a rotation do what is said of them', async (t) => {
  const directory = await temporaryDirectory(t)
  await run(t, directory, ['keys', 'add', '--directory', 'keys', '--kid', 'old'])
  const [add, activate, list, retire, ...more] = commandsUnder('docs/keys-and-rotation.md', 'Rotate a key')
  if (!add || !activate || !list || !retire) throw new Error('there are four commands')
  t.strictSame(more, [])
  t.match(JSON.parse((await run(t, directory, add)).stdout), { kid: 'new', active: false })
  t.match(await run(t, directory, activate), { failure: undefined, stdout: 'new signs in place of old\n' })
  t.match((await run(t, directory, list)).stdout, /^old .* 2026-11-21T12:01:01\.000Z$/m)
  const early = await run(t, directory, retire, NOW + 86_460_000)
  t.match(early.failure, { exitCode: 1, message: /until 2026-11-21T12:01:01\.000Z/ })
  t.match(await run(t, directory, retire, NOW + 86_461_000), { failure: undefined })
})

t.test('a key that has leaked goes at once', async (t) => {
  const directory = await temporaryDirectory(t)
  await run(t, directory, ['keys', 'add', '--directory', 'keys', '--kid', 'leaked'])
  const commands = commandsUnder('docs/keys-and-rotation.md', 'A key has leaked')
  t.equal(commands.length, 2)
  for (const args of commands) t.match(await run(t, directory, args), { failure: undefined })
})

t.test('the commands for credentials in a file work in their order', async (t) => {
  const directory = await temporaryDirectory(t)
  const commands = commandsUnder('docs/credentials-and-revocations.md', 'Credentials in a file')
  t.equal(commands.length, 5)
  for (const args of commands) t.match(await run(t, directory, args), { failure: undefined })
})

t.test('a secret that somebody brings is kept as scrypt, with its expiry', async (t) => {
  const directory = await temporaryDirectory(t)
  const [add, ...more] = commandsUnder('docs/credentials-and-revocations.md', 'Secrets')
  if (!add) throw new Error('there is one command')
  t.strictSame(more, [])
  t.match(await run(t, directory, add, NOW, 'correct horse battery\n'), { failure: undefined })
  const text = readFileSync(join(directory, 'credentials.yaml'), 'utf8')
  t.match(text, /secretHash: \$scrypt\$ln=14,r=8,p=5\$/)
  t.match(text, 'expiresAt: 2030-01-01T00:00:00Z')
})

t.test('the commands for PostgreSQL are understood, and want the file with the URL', async (t) => {
  const directory = await temporaryDirectory(t)
  await run(t, directory, ['credentials', 'add', '--file', 'credentials.yaml', '--account', 'acme'])
  const commands = commandsUnder('docs/credentials-and-revocations.md', 'Credentials in PostgreSQL')
  t.equal(commands.length, 3)
  for (const args of commands)
    t.match(await run(t, directory, args), { failure: { message: /postgres\.url: / } })
})

t.test('the settings and the revocations are good ones', async (t) => {
  const settings = blocks(read('docs/keys-and-rotation.md'), 'yaml')
  t.equal(settings.length, 1)
  for (const text of settings) {
    const file = join(await temporaryDirectory(t), 'sidecar.yaml')
    writeFileSync(file, text)
    t.match(await runCommand(configCommand, ['check', '--config', file]), { failure: undefined })
  }
  const revocations = blocks(read('docs/credentials-and-revocations.md'), 'yaml')
  t.equal(revocations.length, 1)
  for (const text of revocations) {
    const parsed = parseRevocations(text)
    t.equal(parsed.ok && parsed.value.length, 3)
  }
})

t.test('every metric that a guide names is there', async (t) => {
  const known = new Set(tableUnder('docs/metrics.md', '# Metrics').map(({ metric }) => codeIn(metric)[0]))
  for (const path of GUIDES) {
    const named = new Set(read(path).match(/auth_sidecar_[a-z_]+/g))
    t.ok(named.size > 0, path)
    for (const name of named) t.ok(known.has(name), `${path}: ${name}`)
  }
})
