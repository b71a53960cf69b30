/**
 * `npm run bench:logins`: whether logins get in the way of anybody, and what they tell to who guesses.
 *
 * - p99 of token checks, of remembered tokens and of new ones, while 200 clients log in with scrypt credentials
 *   all at once, waiting a second after a 503 as they are told to, then not waiting; and how they were answered;
 * - logins per second of one process on one core, with a generated secret and with one that somebody brought;
 * - median times of failed logins by reason, one after the other and interleaved: they must not differ.
 *
 *     npm run bench:logins -- [--seconds 10] [--samples 2000] [--scrypt-samples 40]
 *
 * @module
 */
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { openLab, type Running } from './lab/lab.ts'
import { freePort, listening } from './lab/ports.ts'
import { requestText, writeRequests } from './lab/requests.ts'
import { median } from './lab/statistics.ts'
import { makeTrust, parsedLogin, runCommand, type Trust } from './lab/trust.ts'
import { type ClientConnection, openConnection } from './load/connection.ts'
import { type LoadReport, runClient } from './load/load.ts'
import { sidecar } from './peers/sidecar.ts'
import { startSmallUpstream } from './peers/upstreams.ts'
import { type Row, tableOf } from './report/columns.ts'

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    samples: { type: 'string', default: '2000' },
    'scrypt-samples': { type: 'string', default: '40' },
  },
})
const seconds = Number(values.seconds)

type Login = Trust['login']

const lab = openLab()
const trust = makeTrust(lab)
const upstreamPort = await startSmallUpstream(lab)

// Two stores: one as `makeTrust` made it, with generated secrets only, and one that has a brought secret as well.
const scryptFile = join(lab.directory, 'scrypt-credentials.yaml')
const add = (file: string, account: string, ...more: string[]) =>
  runCommand(
    lab.directory,
    ['credentials', 'add', '--file', file, '--account', account, ...more],
    'a brought secret',
  )
const disable = (file: string, { accountId, accessKey }: Login) =>
  runCommand(lab.directory, [
    ...['credentials', 'disable', '--file', file],
    ...['--account', accountId, '--access-key', accessKey],
  ])
const generated = { known: trust.login, disabled: parsedLogin(add('credentials.yaml', 'gone')) }
disable('credentials.yaml', generated.disabled)
add(scryptFile, 'bench', '--access-key', trust.login.accessKey, '--secret-stdin')
const brought = {
  known: { ...trust.login, secret: 'a brought secret' },
  disabled: { accountId: 'gone', accessKey: 'GONE', secret: 'a brought secret' },
}
add(scryptFile, 'gone', '--access-key', 'GONE', '--secret-stdin')
disable(scryptFile, brought.disabled)

await underLogins()
await perSecond()
await failures('generated secrets only', 'credentials.yaml', generated, Number(values.samples))
await failures('a scrypt credential in the store', scryptFile, brought, Number(values['scrypt-samples']))
process.exit()

/** A sidecar whose throttle counts to a million: what is measured is behind it. */
async function start(credentials: string): Promise<Running & { readonly port: number }> {
  const port = await freePort()
  const settings = {
    SIDECAR_LIMITS_LOGIN_FAILURES_COUNT: '1000000',
    SIDECAR_UPSTREAM_URL: `http://127.0.0.1:${upstreamPort}`,
  }
  const flags = ['--keys-directory', 'keys', '--credentials-file', credentials]
  const running = sidecar('ES256', settings).start({ lab, trust: { ...trust, flags }, port, upstreamPort })
  await listening(port)
  return { ...running, port }
}

function loginText(login: Login): string {
  return requestText({ method: 'POST', path: '/v2/auth/token', body: JSON.stringify(login) })
}

async function underLogins(): Promise<void> {
  const { port, stop } = await start(scryptFile)
  const logins = writeRequests(lab, 'scrypt-logins', [loginText(brought.known)])
  const hot = writeRequests(lab, 'hot', [requestText({ token: trust.mint('ES256') })])
  const newTokens = Array.from({ length: 250 * seconds + 100 }, () =>
    requestText({ token: trust.mint('ES256') }),
  )
  const cold = writeRequests(lab, 'cold', newTokens)
  await runClient(lab, { port, requests: hot, connections: 20, seconds: 2 })
  const quiet = await Promise.all([
    runClient(lab, { port, requests: hot, connections: 20, seconds: 3, rate: 500 }),
    runClient(lab, { port, requests: cold, connections: 20, seconds: 3, rate: 20 }),
  ])
  let unused = 60 // the turn of the first new token that has not been sent
  const during = async (pauseMs: number) => {
    const start = unused
    unused += 100 * seconds + 20
    return Promise.all([
      runClient(lab, { port, requests: logins, connections: 200, seconds, pauseMs }),
      runClient(lab, { port, requests: hot, connections: 100, seconds, rate: 500 }),
      runClient(lab, { port, requests: cold, connections: 100, seconds, rate: 100, start }),
    ])
  }
  const [polite, ...withPolite] = await during(1000)
  const [rude, ...withRude] = await during(0)
  await stop()
  for (const report of [...quiet, ...withPolite, ...withRude]) mustBeForwarded(report)
  const names = ['remembered tokens', 'new tokens']
  const rows = [
    ...quiet.map((report, at) => checkRow(`${names[at]}, no logins`, report)),
    ...withPolite.map((report, at) => checkRow(`${names[at]}, 200 that wait after a 503`, report)),
    ...withRude.map((report, at) => checkRow(`${names[at]}, 200 that come back at once`, report)),
  ]
  console.log(`## Token checks while 200 clients log in with scrypt credentials\n\n${tableOf(rows)}\n`)
  const clients = { 'clients that wait': polite, 'clients that do not': rude }
  for (const [name, { statuses = {}, failed }] of Object.entries(clients)) {
    const said = Object.entries(statuses).map(([status, count]) => `${status}: ${count}`)
    console.log(
      `Logins of ${name}, in ${seconds} s, by status: ${said.join(', ')}; failed connections: ${failed}.`,
    )
  }
  console.log()
}

function checkRow(name: string, { p50, p99, requests }: LoadReport): Row {
  return { name, figures: { p50: p50 / 1000, p99: p99 / 1000, samples: requests } }
}

function mustBeForwarded({ refused, failed }: LoadReport): void {
  if (refused + failed > 0) throw new Error(`${refused} good tokens refused, ${failed} connections failed`)
}

async function perSecond(): Promise<void> {
  const rows: Row[] = []
  const kinds = [
    { name: 'generated secret', file: 'credentials.yaml', login: generated.known, connections: 50 },
    { name: 'brought secret (scrypt)', file: scryptFile, login: brought.known, connections: 8 },
  ]
  for (const { name, file, login, connections } of kinds) {
    const { port, stop } = await start(file)
    const requests = writeRequests(lab, 'logins', [loginText(login)])
    await runClient(lab, { port, requests, connections, seconds: 2 })
    const report = await runClient(lab, { port, requests, connections, seconds })
    await stop()
    mustBeForwarded(report)
    rows.push({
      name,
      figures: {
        perSecond: report.requests / report.seconds,
        p50: report.p50 / 1000,
        p99: report.p99 / 1000,
      },
    })
  }
  console.log(`## Logins per second, one process on one core\n\n${tableOf(rows)}\n`)
}

async function failures(
  what: string,
  file: string,
  { known, disabled }: { readonly known: Login; readonly disabled: Login },
  samples: number,
): Promise<void> {
  const { port, stop } = await start(file)
  const connection = openConnection(port)
  const kinds = [
    ['wrong secret', { ...known, secret: 'B'.repeat(known.secret.length) }],
    ['unknown account', { ...known, accountId: 'nobody' }],
    ['disabled credential', disabled],
  ] as const
  const texts = kinds.map(([, login]) => loginText(login))
  const times = kinds.map((): number[] => [])
  const warmUp = Math.ceil(samples / 4)
  for (let round = -warmUp; round < samples; round++) {
    for (let turn = 0; turn < texts.length; turn++) {
      const at = (turn + round + warmUp) % texts.length // each kind follows each other one equally often
      const milliseconds = await failedLogin(connection, texts[at] ?? '')
      if (round >= 0) times[at]?.push(milliseconds)
    }
  }
  connection.close()
  await stop()
  const medians = times.map(median)
  const rows = kinds.map(([name], at) => ({
    name,
    figures: {
      medianMs: medians[at] ?? Number.NaN,
      toFirst: (medians[at] ?? Number.NaN) / (medians[0] ?? Number.NaN),
      samples,
    },
  }))
  console.log(`## Failed logins, ${what}\n\n${tableOf(rows)}\n`)
}

function failedLogin(connection: ClientConnection, text: string): Promise<number> {
  const began = performance.now()
  return new Promise((resolve, reject) => {
    connection.ask(text, (answer) => {
      if (answer?.status === 403) resolve(performance.now() - began)
      else reject(new Error(`a failed login was answered with ${answer?.status}`))
    })
  })
}
