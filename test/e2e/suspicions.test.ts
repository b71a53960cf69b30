import { readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { makeCredentialsFile } from '../support/credentials.ts'
import { eventually } from '../support/eventually.ts'
import { runProgram } from '../support/program.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const suspect = (sidecar: TestSidecar, subject: string) =>
  sidecar.metric(`auth_sidecar_reload_suspect{subject="${subject}"}`)

async function becomes(sidecar: TestSidecar, subject: string, expected: number, what: string): Promise<void> {
  await eventually(async () => (await suspect(sidecar, subject)) === expected, what)
}

/** A sidecar with a file of three revocations. */
async function withRevocations(t: Test) {
  const file = join(await temporaryDirectory(t), 'revocations.yaml')
  const write = (...accounts: string[]) =>
    writeFileSync(
      file,
      `revocations:\n${accounts.map((account) => `  - accountId: ${account}\n`).join('')}`.replace(
        /:\n$/,
        ': []\n',
      ),
    )
  write('a', 'b', 'c')
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    settings: { 'revocations-file': file },
  })
  const active = (count: number) =>
    eventually(
      async () => (await sidecar.metric('auth_sidecar_revocations')) === count,
      `${count} revocations`,
    )
  return { file, write, sidecar, active }
}

t.test('an emptied list of credentials is suspect until it has some again', async (t) => {
  const sidecar = await startSidecar(t, { upstreamUrl: 'http://127.0.0.1:9' })
  const before = readFileSync(sidecar.credentialsFile)
  t.equal(await sidecar.metric('auth_sidecar_credentials_active'), 1)
  t.equal(await suspect(sidecar, 'credentials'), 0)
  writeFileSync(sidecar.credentialsFile, 'accounts: []\n')
  await becomes(sidecar, 'credentials', 1, 'suspect')
  t.equal(await sidecar.metric('auth_sidecar_credentials_active'), 0)
  t.match(
    sidecar.log.filter(({ msg }) => msg === 'new version is suspect'),
    [{ level: 40, subject: 'credentials', suspicion: /became empty/ }],
  )
  const status = await (await fetch(`http://127.0.0.1:${sidecar.adminPort}/status.json`)).text()
  t.match(status, 'The newest credentials are probably a mistake')
  writeFileSync(sidecar.credentialsFile, before)
  await becomes(sidecar, 'credentials', 0, 'no longer')
})

t.test('revocations that are lost at once are suspect until they are back', async (t) => {
  const { sidecar, write, active } = await withRevocations(t)
  write('a')
  await becomes(sidecar, 'revocations', 1, 'two are lost')
  write('a', 'b', 'c', 'd')
  await active(4)
  await becomes(sidecar, 'revocations', 0, 'they are back')
})

t.test('an older file that lacks one revocation is suspect, until an operator accepts it', async (t) => {
  const { sidecar, file, write } = await withRevocations(t)
  write('a', 'b')
  utimesSync(file, new Date(0), new Date(0))
  await becomes(sidecar, 'revocations', 1, 'a restore from a backup')
  await sidecar.app.reload()
  await becomes(sidecar, 'revocations', 0, 'accepted')
})

t.test('revocations remove is no suspicion', async (t) => {
  const { sidecar, file, active } = await withRevocations(t)
  for (const [account, left] of [
    ['a', 2],
    ['b', 1],
  ] as const) {
    const { code, stderr } = await runProgram(t, [
      'revocations',
      'remove',
      '--file',
      file,
      '--account',
      account,
    ])
    t.equal(code, 0, stderr)
    await active(left)
    t.equal(await suspect(sidecar, 'revocations'), 0)
  }
})

t.test('revocations whose tokens have ended may go', async (t) => {
  const { sidecar, file, active } = await withRevocations(t)
  const ended = '2020-01-01T00:00:00Z'
  const entry = (account: string) => `  - { accountId: ${account}, issuedBefore: ${ended} }\n`
  writeFileSync(
    file,
    `revocations:\n  - accountId: a\n  - accountId: b\n  - accountId: c\n${entry('x')}${entry('y')}`,
  )
  await active(5)
  writeFileSync(file, 'revocations:\n  - accountId: a\n  - accountId: b\n  - accountId: c\n')
  await active(3)
  t.equal(await suspect(sidecar, 'revocations'), 0)
})

const isLinux = process.platform === 'linux'
t.test(
  'a file that was replaced behind its mount is suspect',
  { skip: !isLinux && 'needs /proc' },
  async (t) => {
    // As a mount of a file does, the path of a descriptor still leads to the file that is gone.
    const { file } = await makeCredentialsFile(t)
    const handle = await open(file)
    t.teardown(() => handle.close())
    const mounted = `/proc/${process.pid}/fd/${handle.fd}`
    await unlink(file)
    const sidecar = await startSidecar(t, {
      upstreamUrl: 'http://127.0.0.1:9',
      settings: { 'credentials-file': mounted },
    })
    await becomes(sidecar, 'credentials', 1, 'suspect')
    t.match(sidecar.log.find(({ msg }) => msg === 'new version is suspect')?.['suspicion'], /replaced behind/)
  },
)

t.test('the fingerprint is that of the content', async (t) => {
  const { sidecar, write, active } = await withRevocations(t)
  const fingerprint = () => sidecar.metric('auth_sidecar_state_fingerprint{subject="revocations"}')
  await eventually(async () => (await fingerprint()) > 0, 'a fingerprint')
  const first = await fingerprint()
  write('a', 'b', 'c', 'd')
  await active(4)
  await eventually(async () => (await fingerprint()) !== first, 'another fingerprint')
  write('a', 'b', 'c')
  await eventually(async () => (await fingerprint()) === first, 'the first fingerprint')
})
