import t from 'tap'
import { rawRequest } from './support/raw-client.ts'
import { startSidecar } from './support/sidecar.ts'

t.test('an internal error is a 500, is logged and does not end the process', async (t) => {
  let broken = false
  const now = () => {
    if (broken) throw new Error('the clock is broken')
    return Date.now()
  }
  const sidecar = await startSidecar(t, { now, upstreamUrl: 'http://127.0.0.1:9' })
  broken = true
  const ask = (bytes: string) => rawRequest(t, sidecar.port, bytes)
  const get = `GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: r-1\r\nAuthorization: Bearer ${sidecar.token}\r\n\r\n`
  t.match(await ask(get), { status: 500, headers: { 'x-request-id': 'r-1' } })
  const body = JSON.stringify(sidecar.logins[0])
  const login = `POST /v2/auth/token HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  t.equal((await ask(login)).status, 503, 'a login that could not be checked')
  broken = false
  t.equal((await ask(login)).status, 200)
  const err = { type: 'Error', message: 'the clock is broken' }
  t.match(
    sidecar.log.filter(({ level }) => level === 50),
    [
      { msg: 'request failed with an internal error', requestId: 'r-1', err },
      { msg: 'a login could not be checked', err },
    ],
  )
})
