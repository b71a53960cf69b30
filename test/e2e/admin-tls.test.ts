import { writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { join } from 'node:path'
import t from 'tap'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { prepareFiles, runProgram, serve, serveArgs } from '../support/program.ts'
import { NAMES, writePair } from '../support/secured.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const authority = makeCertificate({ commonName: 'test authority', authority: true })
const named = (commonName: string) => makeCertificate({ commonName, names: NAMES, issuer: authority })

/** The status and body of a page, and the name of the certificate that the admin listener shows. */
function get(port: number, path: string): Promise<{ status: number; body: string; shown: string }> {
  return new Promise((resolve, reject) => {
    request({ port, host: '127.0.0.1', path, ca: authority.cert, agent: false }, (response) => {
      const { socket } = response
      const shown =
        'getPeerCertificate' in socket ? String(Object(socket).getPeerCertificate().subject.CN) : ''
      let body = ''
      response.on('data', (chunk) => (body += chunk))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body, shown }))
    })
      .on('error', reject)
      .end()
  })
}

for (const workers of ['1', '2']) {
  t.test(`with ${workers} worker(s) the admin listener speaks TLS and reloads its certificate`, async (t) => {
    const directory = await temporaryDirectory(t)
    writePair(directory, named('first'))
    const { files } = await prepareFiles(t)
    const flags = {
      ...files,
      'upstream-url': 'http://127.0.0.1:9',
      'admin-tls-cert-file': join(directory, 'cert.pem'),
      'admin-tls-key-file': join(directory, 'key.pem'),
      workers,
    }
    const { adminPort } = await serve(t, flags)
    t.match(await get(adminPort, '/livez'), { status: 200, shown: 'first' })
    t.equal(JSON.parse((await get(adminPort, '/.well-known/jwks.json')).body).keys.length, 1)
    t.match((await get(adminPort, '/metrics')).body, /not_after_timestamp_seconds\{certificate="admin"} \d/)
    await t.rejects(fetch(`http://127.0.0.1:${adminPort}/livez`), 'plain HTTP has no response')

    writePair(directory, named('second'))
    await eventually(async () => (await get(adminPort, '/livez')).shown === 'second', 'the new one')
    writeFileSync(join(directory, 'cert.pem'), 'rubbish')
    const isFailing = async () =>
      /reload_failing\{subject="certificates"} 1/.test((await get(adminPort, '/metrics')).body)
    await eventually(isFailing, 'a rejected version')
    t.equal((await get(adminPort, '/livez')).shown, 'second')

    const broken = await runProgram(t, ['serve', ...serveArgs(flags)])
    t.equal(broken.code, 2)
    t.match(broken.stderr, /admin\.tls\.certFile.*holds no certificate/)
  })
}
