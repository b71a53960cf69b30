import t from 'tap'
import { explain, explainJson, explainText } from '../../src/config/explain.ts'
import { SETTINGS } from '../../src/config/settings.ts'
import { accepted } from './support.ts'

t.test('shows every value in force and where it came from', async (t) => {
  const { config, origins } = accepted({ yaml: 'listen:\n  port: 81', flags: { '--log-level': 'warn' } })
  const effective = explain(config, origins)
  const find = (setting: string) => effective.find((one) => one.setting === setting)
  t.strictSame(find('listen.port'), { setting: 'listen.port', value: 81, origin: 'sidecar.yaml:2:9' })
  t.strictSame(find('log.level'), { setting: 'log.level', value: 'warn', origin: 'flag --log-level' })
  t.strictSame(find('upstreams')?.value, [{ prefix: '/', url: 'http://127.0.0.1:9000' }])
  const missing = SETTINGS.map(({ path }) => path).filter((path) => !find(path))
  t.strictSame(missing, [
    'listen.tls.certFile',
    'listen.tls.keyFile',
    'listen.tls.clientCaFile',
    'keys.jwksUrl',
    'credentials.postgres.urlFile',
    'credentials.postgres.poolSize',
  ])

  const lines = explainText(effective).split('\n')
  t.match(lines[0], /^SETTING {2,}VALUE {2,}FROM$/)
  t.ok(lines.some((line) => /^listen\.port {2,}81 {2,}sidecar\.yaml:2:9$/.test(line)))
  const column = String(lines[0]).indexOf('FROM')
  t.ok(
    lines.slice(0, -1).every((line) => line[column - 1] === ' ' && line[column] !== ' '),
    'aligned',
  )
  t.strictSame(JSON.parse(explainJson(effective))['listen.port'], { value: 81, origin: 'sidecar.yaml:2:9' })
})

t.test('masks whatever in a URL could be a secret', async (t) => {
  const { config, origins } = accepted({ flags: { '--keys-jwks-url': 'https://issuer/keys' } })
  const upstreams = [{ prefix: '/', url: 'http://me:hunter2@host' }]
  const keys = { jwksUrl: 'https://issuer/keys?key=hunter2' }
  const text = explainText(explain({ ...config, upstreams, keys }, origins))
  t.notMatch(text, /hunter2/)
  t.match(text, /http:\/\/\*\*\*@host/)
  t.match(text, /https:\/\/issuer\/keys\?\*\*\*/)
})
