import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { createApp } from '../src/app.ts'
import { loadConfig } from '../src/config/load.ts'
import { createLog } from '../src/log.ts'
import { makeCredentialsFile } from './support/credentials.ts'
import { freePort } from './support/free-port.ts'
import { makeKeyDirectory } from './support/keys.ts'
import { listen } from './support/listen.ts'
import { rawClient } from './support/raw-client.ts'
import { startSidecar } from './support/sidecar.ts'

/** Whether the port accepts connections. */
async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  const connected = await once(socket, 'connect').then(
    () => true,
    () => false,
  )
  socket.destroy()
  return connected
}

/** An app with good files, not started, and its log. */
async function app(t: Test, flags: Record<string, string> = {}) {
  const { directory } = await makeKeyDirectory(t)
  const { file } = await makeCredentialsFile(t)
  const loaded = loadConfig({
    env: { SIDECAR_UPSTREAM_URL: 'http://127.0.0.1:9' },
    flags: {
      '--listen-host': '127.0.0.1',
      '--listen-port': '0',
      '--admin-host': '127.0.0.1',
      '--admin-port': '0',
      '--keys-directory': directory,
      '--credentials-file': file,
      ...flags,
    },
  })
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems))
  const log: Record<string, unknown>[] = []
  const destination = { write: (line: string) => void log.push(JSON.parse(line)) }
  const create = () => createApp({ config: loaded.config, log: createLog('info', destination) })
  return { create, log, directory }
}

t.test('if one port is in use the other one is not opened', async (t) => {
  for (const taken of ['--listen-port', '--admin-port']) {
    const [other, free] = [taken === '--admin-port' ? '--listen-port' : '--admin-port', await freePort()]
    const { create, log } = await app(t, {
      [taken]: String(await listen(t, createServer())),
      [other]: String(free),
    })
    const sidecar = await create()
    await t.rejects(sidecar.start(), { code: 'EADDRINUSE' }, taken)
    t.notOk(await answers(free), `${other} is free again`)
    t.strictSame(log, [], 'and no listener was logged')
  }
})

t.test('an internal error is a 500, is logged and does not end the process', async (t) => {
  let broken = false
  const now = () => {
    if (broken) throw new Error('the clock is broken')
    return Date.now()
  }
  const sidecar = await startSidecar(t, { now, upstreamUrl: 'http://127.0.0.1:9' })
  broken = true
  const client = await rawClient(t, sidecar.port)
  client.send(
    `GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-1\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`,
  )
  t.match(await client.response(), { status: 500, headers: { 'x-request-id': 'r-1' } })
  const login = JSON.stringify(sidecar.logins[0])
  const another = await rawClient(t, sidecar.port)
  another.send(`POST /v2/auth/token HTTP/1.1\r\nHost: a\r\nContent-Length: ${login.length}\r\n\r\n${login}`)
  t.equal((await another.response()).status, 503, 'a login that could not be checked')
  broken = false
  const third = await rawClient(t, sidecar.port)
  third.send(`POST /v2/auth/token HTTP/1.1\r\nHost: a\r\nContent-Length: ${login.length}\r\n\r\n${login}`)
  t.equal((await third.response()).status, 200)
  const err = { type: 'Error', message: 'the clock is broken' }
  t.match(
    sidecar.log.filter(({ level }) => level === 50),
    [
      { msg: 'request failed with an internal error', requestId: 'r-1', err },
      { msg: 'a login could not be checked', err },
    ],
  )
})
