/**
 * Logins with chosen secrets cost a scrypt run each, one at a time.
 * Clients that guess do not keep others out.
 */
import { Agent, request } from 'node:http'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { startSetup } from '../support/setup.ts'

const SECRET = 'a chosen secret'

/** Logs in from an address of the loopback network. Resolves with the status. */
function logInFrom(agent: Agent, port: number, localAddress: string, login: object): Promise<number> {
  const body = JSON.stringify(login)
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) }
  return new Promise((resolve, reject) => {
    const options = {
      agent,
      port,
      localAddress,
      host: '127.0.0.1',
      method: 'POST',
      path: '/v2/auth/token',
      headers,
    }
    const sent = request(options, (response) => {
      response.resume().on('end', () => resolve(response.statusCode ?? 0))
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

/** Floods from five networks until the test ends. Each has many logins of made-up accounts in flight. */
function flood(t: Test, port: number) {
  const agent = new Agent({ keepAlive: true, maxSockets: 100 })
  const statuses: number[] = []
  let isOver = false
  const guess = async (address: string, name: string) => {
    for (let count = 0; !isOver; count++) {
      const login = { accountId: `${name}-${count}`, accessKey: 'AK', secret: 'a guess' }
      statuses.push(await logInFrom(agent, port, address, login))
    }
  }
  const clients = [1, 2, 3, 4, 5].flatMap((network) =>
    Array.from({ length: 12 }, (_, at) => guess(`127.0.${network}.${at + 2}`, `made-up-${network}-${at}`)),
  )
  t.teardown(async () => {
    isOver = true
    await Promise.all(clients)
    agent.destroy()
  })
  return statuses
}

t.test('while five networks guess, every right login of a known network is answered', async (t) => {
  const credentials = [{ accountId: 'acme', secret: SECRET, scheme: 'scrypt' }] as const
  const { sidecar } = await startSetup(t, { credentials })
  const [login = {}] = sidecar.logins
  const agent = new Agent({ keepAlive: true })
  t.teardown(() => agent.destroy())
  const logIn = (address: string) => logInFrom(agent, sidecar.port, address, login)
  t.equal(await logIn('127.0.9.2'), 200)

  const guesses = flood(t, sidecar.port)
  await eventually(() => guesses.includes(503), 'a full queue')
  const statuses = []
  for (let count = 0; count < 4; count++) {
    statuses.push(await logIn(`127.0.9.${count + 2}`))
  }
  t.same(statuses, Array(4).fill(200))
  t.ok(guesses.includes(403), 'some guesses are checked, too')
  // A stranger waits among the guesses of five networks, with one job in each turn.
  t.equal(await logIn('127.0.10.2'), 200, 'and so is the first login of another network')
})
