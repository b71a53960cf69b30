import t from 'tap'
import { explain } from '../../src/config/explain.ts'
import { SETTINGS } from '../../src/config/settings.ts'
import { accepted } from './support.ts'

t.test('every effective value is listed with its origin', async (t) => {
  const { config, origins } = accepted({ yaml: 'listen:\n  port: 81', flags: { '--log-level': 'warn' } })
  const effective = explain(config, origins)
  const find = (setting: string) => effective.find((one) => one.setting === setting)
  t.match(find('listen.port'), { value: 81, origin: 'sidecar.yaml:2:9' })
  t.match(find('log.level'), { value: 'warn', origin: 'flag --log-level' })
  t.strictSame(find('upstreams')?.value, [{ prefix: '/', url: 'http://127.0.0.1:9000' }])
  t.strictSame(
    SETTINGS.map(({ path }) => path).filter((path) => !find(path)),
    [
      'listen.tls.certFile',
      'listen.tls.keyFile',
      'listen.tls.clientCaFile',
      'keys.jwksUrl',
      'credentials.postgres.urlFile',
      'credentials.postgres.poolSize',
    ],
    'settings without a value are left out',
  )
})

t.test('passwords and queries in URLs are masked', async (t) => {
  const { config, origins } = accepted({ flags: { '--keys-jwks-url': 'https://issuer/keys' } })
  const upstreams = [{ prefix: '/', url: 'http://me:hunter2@host' }]
  const keys = { jwksUrl: 'https://issuer/keys?key=hunter2' }
  const text = JSON.stringify(explain({ ...config, upstreams, keys }, origins))
  t.notMatch(text, /hunter2/)
  t.match(text, /http:\/\/\*\*\*@host/)
  t.match(text, /https:\/\/issuer\/keys\?\*\*\*/)
})
