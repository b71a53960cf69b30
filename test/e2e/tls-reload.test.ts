import { once } from 'node:events'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ConnectionOptions, connect } from 'node:tls'
import t, { type Test } from 'tap'
import { makeCertificate, type TestCertificate } from '../support/certificates.ts'
import { eventually, SOON_MS } from '../support/eventually.ts'
import { rawRequest } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { NAMES, type Secured, startSecured, tlsUpstream, writePair } from '../support/secured.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** The certificate that a new connection is shown. */
async function shown(port: number, options: ConnectionOptions): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', servername: 'localhost', ...options })
  try {
    await once(socket, 'secureConnect')
    return String(socket.getPeerCertificate().subject.CN)
  } finally {
    socket.destroy()
  }
}

/** Waits until new connections are shown a certificate. */
async function becomes({ sidecar, authority }: Secured, t: Test, name: string): Promise<void> {
  const isShown = async () => (await shown(sidecar.port, { ca: authority.cert })) === name
  await eventually(isShown, `${name} to be shown`, SOON_MS)
  t.pass(`${name} is shown`)
}

const reloads = (sidecar: TestSidecar, result: string) =>
  sidecar.metric(`auth_sidecar_reloads_total{subject="certificates",result="${result}"}`)

const isFailing = (sidecar: TestSidecar) =>
  sidecar.metric('auth_sidecar_reload_failing{subject="certificates"}')

const serverNamed = (commonName: string, issuer: TestCertificate, notAfter?: number) =>
  makeCertificate({ commonName, names: NAMES, issuer, ...(notAfter !== undefined && { notAfter }) })

t.test('new connections use new certificates, and open ones continue', async (t) => {
  const secured = await startSecured(t)
  const { sidecar, authority, directory, head } = secured
  const kept = await secured.connect()
  let running = true
  const statuses: number[] = []
  const failures: unknown[] = []
  const client = async (keeps: boolean) => {
    let connection = await secured.connect()
    while (running) {
      try {
        connection.send(head('GET /object', ...(keeps ? [] : ['Connection: close'])))
        statuses.push((await connection.response()).status)
        if (!keeps) connection = await secured.connect()
      } catch (error) {
        failures.push(error)
        connection = await secured.connect()
      }
    }
  }
  const clients = [client(true), client(true), client(false), client(false)]
  await becomes(secured, t, 'first')
  for (const name of ['second', 'third', 'fourth']) {
    writePair(directory, serverNamed(name, authority))
    await becomes(secured, t, name)
    const served = statuses.length
    await eventually(() => statuses.length > served + 2 * clients.length, 'requests to go on')
  }
  running = false
  await Promise.all(clients)
  t.strictSame(failures, [])
  t.strictSame(new Set(statuses), new Set([200]))
  kept.send(head('GET /object'))
  t.equal((await kept.response()).status, 200, 'a connection from before lives on')
  t.equal(kept.socket.getPeerCertificate().subject.CN, 'first')
  t.equal(await reloads(sidecar, 'ok'), 3)
  t.equal(await isFailing(sidecar), 0)
})

t.test('a mismatched pair is reported and ignored until it matches', async (t) => {
  const secured = await startSecured(t)
  const { sidecar, authority, directory } = secured
  const notAfter = Math.floor(Date.now() / 1000 + 7 * 86_400) * 1000
  const second = serverNamed('second', authority, notAfter)
  const expiry = () =>
    sidecar.metric('auth_sidecar_certificate_not_after_timestamp_seconds{certificate="listener"}')
  t.not(await expiry(), notAfter / 1000)
  writeFileSync(join(directory, 'cert.pem'), second.cert)
  await eventually(async () => (await reloads(sidecar, 'failed')) === 1, 'half a pair to be reported')
  t.equal(await isFailing(sidecar), 1)
  t.equal(await shown(sidecar.port, { ca: authority.cert }), 'first')
  t.equal(await secured.get(), 200)
  const said = sidecar.log.find(({ subject }) => subject === 'certificates')
  t.match(said?.['problems'], [
    /^listen\.tls\.keyFile: .*key\.pem: must hold the private key of the first cert/,
  ])
  t.notMatch(JSON.stringify(sidecar.log), /BEGIN/)
  writeFileSync(join(directory, 'key.pem'), second.key)
  await becomes(secured, t, 'second')
  t.equal(await isFailing(sidecar), 0)
  t.equal(await reloads(sidecar, 'ok'), 1)
  t.equal(await expiry(), notAfter / 1000)
  rmSync(join(directory, 'key.pem'))
  await eventually(async () => (await isFailing(sidecar)) === 1, 'the missing file to be reported')
  t.equal(await shown(sidecar.port, { ca: authority.cert }), 'second')
})

t.test('changed client authorities apply to new connections', async (t) => {
  const [before, after] = ['before', 'after'].map((commonName) =>
    makeCertificate({ commonName, authority: true }),
  ) as [TestCertificate, TestCertificate]
  const clientCaFile = join(await temporaryDirectory(t), 'clients.pem')
  writeFileSync(clientCaFile, before.cert)
  const secured = await startSecured(t, { settings: { 'listen-tls-client-ca-file': clientCaFile } })
  const [old, young] = [before, after].map((issuer) => {
    const { cert, key } = makeCertificate({ commonName: 'a client', issuer })
    return { cert, key }
  }) as [ConnectionOptions, ConnectionOptions]
  const status = (options: ConnectionOptions) => secured.get(options).catch(() => 0)
  t.equal(await status(old), 200)
  t.equal(await status(young), 0)
  const first = await secured.connect({ ...old, maxVersion: 'TLSv1.2' })
  const session = first.socket.getSession()
  writeFileSync(clientCaFile, after.cert)
  await eventually(async () => (await status(young)) === 200, 'the other authority to be known')
  t.equal(await status(old), 0)
  t.equal(
    await status({ ...old, maxVersion: 'TLSv1.2', ...(session && { session }) }),
    0,
    'nor with a session',
  )
  first.send(secured.head('GET /object'))
  t.equal((await first.response()).status, 200, 'who is in stays in')
})

t.test('new connections to upstreams use the current files', async (t) => {
  const authority = makeCertificate({ commonName: 'test authority', authority: true })
  const stranger = makeCertificate({ commonName: 'another authority', authority: true })
  const directory = await temporaryDirectory(t)
  const path = (name: string) => join(directory, name)
  const ours = (commonName: string) => makeCertificate({ commonName, issuer: authority })
  const options = { ...serverNamed('upstream', authority), ca: authority.cert, requestCert: true }
  // Each connection is used once.
  const closing = OK.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')
  const { port, clients } = await tlsUpstream(t, options, closing)
  const url = `https://localhost:${port}`
  writeFileSync(path('ca.pem'), stranger.cert)
  writePair(directory, ours('before'))
  const files = { caFile: path('ca.pem'), certFile: path('cert.pem'), keyFile: path('key.pem') }
  const sidecar = await startSidecar(t, {
    settings: { upstreams: JSON.stringify([{ prefix: '/', url, ...files }]) },
  })
  const request = `GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`
  const get = async () => (await rawRequest(t, sidecar.port, request)).status
  t.equal(await get(), 503, 'an unknown authority')
  writeFileSync(path('ca.pem'), authority.cert)
  await eventually(async () => (await get()) === 200, 'the authority to be known', SOON_MS)
  t.equal(clients.at(-1), 'before')
  writePair(directory, ours('after'))
  await eventually(
    async () => (await get()) === 200 && clients.at(-1) === 'after',
    'the new client certificate',
  )
  writeFileSync(path('key.pem'), 'no key')
  await eventually(async () => (await isFailing(sidecar)) === 1, 'the broken key to be reported')
  t.equal(await get(), 200)
  t.equal(clients.at(-1), 'after')
  t.ok(
    (await sidecar.metric('auth_sidecar_certificate_not_after_timestamp_seconds{certificate="upstream:/"}')) >
      0,
  )
})
