import { copyFileSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { decodeJwt, decodeProtectedHeader } from 'jose'
import t, { type Test } from 'tap'
import { keysCommand } from '../../src/cli/keys.ts'
import { makeCredentialsFile } from '../support/credentials.ts'
import { eventually } from '../support/eventually.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { runCommand } from '../support/run-command.ts'
import { startSidecar } from '../support/sidecar.ts'
import { type SidecarClient, sidecarClient } from '../support/sidecar-client.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const LIFETIME_SECONDS = 2

/** The outcome of a command that succeeded. */
const DONE = { failure: undefined }

/** Brings a directory of keys to another place, as a volume that is mounted in two pods. */
function bring(from: string, to: string): void {
  const names = readdirSync(from).filter((name) => !name.startsWith('.') && !name.endsWith('.lock'))
  for (const name of names) {
    copyFileSync(join(from, name), join(to, `.${name}`))
    renameSync(join(to, `.${name}`), join(to, name))
  }
  for (const name of readdirSync(to)) if (!names.includes(name)) rmSync(join(to, name))
}

/** A directory of keys, and two sidecars each of which has its own copy of it. */
async function twoSidecars(t: Test) {
  const upstream = await recordingUpstream(t)
  const directory = await temporaryDirectory(t)
  const keys = (...args: string[]) => runCommand(keysCommand, [...args, '--directory', directory])
  t.match(await keys('add', '--kid', 'old'), DONE)
  const { file, logins } = await makeCredentialsFile(t)
  const [login] = logins
  if (login === undefined) throw new Error('there is a login')
  const sidecar = async () => {
    const copy = await temporaryDirectory(t)
    bring(directory, copy)
    const settings = {
      'keys-directory': copy,
      'credentials-file': file,
      'token-lifetime-seconds': String(LIFETIME_SECONDS),
    }
    const client = sidecarClient(await startSidecar(t, { upstreamUrl: upstream.url, settings }))
    return { client, receive: () => bring(directory, copy) }
  }
  return { keys, login, one: await sidecar(), other: await sidecar() }
}

const kidOf = (token: string) => decodeProtectedHeader(token).kid

/** Logs in at every sidecar and uses each token that is alive at every sidecar, until it is stopped. */
function traffic(clients: readonly SidecarClient[], login: Parameters<SidecarClient['login']>[0]) {
  const alive: { readonly token: string; readonly until: number }[] = []
  const count = { uses: 0, refusals: 0, kids: new Set<string | undefined>() }
  let going = true
  const users = clients.flatMap((client, at) =>
    [1, 2].map(async () => {
      while (going) {
        const token = await client.login(login)
        const { exp = 0 } = decodeJwt(token)
        count.kids.add(kidOf(token))
        alive.push({ token, until: exp * 1000 })
        while ((alive[0]?.until ?? Number.POSITIVE_INFINITY) <= Date.now()) alive.shift()
        const elsewhere = clients[(at + 1) % clients.length] ?? client
        for (const { token, until } of alive.slice(-10)) {
          const status = await elsewhere.forward(token)
          // Still valid when the response arrived: it must have been accepted.
          if (Date.now() >= until) continue
          count.uses++
          if (status !== 200) count.refusals++
        }
        await sleep(60) // the commands need the machine, too
      }
    }),
  )
  const stop = async () => {
    going = false
    await Promise.all(users)
    return count
  }
  return { count, stop }
}

t.test('no valid token is refused during a key rotation, whichever sidecar reloads first', async (t) => {
  const { keys, login, one, other } = await twoSidecars(t)
  const clients = [one.client, other.client]
  const { count, stop } = traffic(clients, login)
  /** The traffic of a moment, so that there are tokens of every state. */
  const more = async () => {
    const { uses } = count
    await eventually(() => count.uses > uses + 50, 'traffic')
  }
  const signs = (client: SidecarClient, kid: string) => async () => kidOf(await client.login(login)) === kid
  const shows = (client: SidecarClient, kid: string) => async () => (await client.kids()).includes(kid)
  await more()

  t.match(await keys('add', '--kid', 'new'), DONE)
  for (const { client, receive } of [one, other]) {
    receive()
    await eventually(shows(client, 'new'), 'the new key to be published')
    await more()
  }
  t.strictSame([...count.kids], ['old'], 'it does not sign yet')

  t.match(await keys('activate', 'new'), DONE)
  const activated = Date.now()
  for (const { client, receive } of [other, one]) {
    receive()
    await eventually(signs(client, 'new'), 'the new key to sign')
    await more()
  }
  t.match(await keys('retire', 'old'), { failure: { exitCode: 1, message: /can be alive until/ } })
  // The other sidecar went on signing for a while.
  const spreadSeconds = Math.ceil((Date.now() - activated) / 1000)
  const lifetime = ['--max-lifetime-seconds', String(LIFETIME_SECONDS + spreadSeconds)]
  await eventually(async () => {
    await sleep(100)
    return (await keys('retire', 'old', ...lifetime)).failure === undefined
  }, 'the old key to go')
  for (const { client, receive } of [one, other]) {
    receive()
    await eventually(async () => !(await shows(client, 'old')()), 'the old key to be gone')
    await more()
  }

  const { uses, refusals, kids } = await stop()
  t.equal(refusals, 0)
  t.ok(uses >= 350, `of ${uses} uses of live tokens`)
  t.strictSame([...kids], ['old', 'new'])
  t.comment(`${refusals} of ${uses} uses of live tokens refused`)
})
