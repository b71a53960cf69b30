import t from 'tap'
import { certificateSets, filesOf } from '../../src/certificates/certificate-sets.ts'

t.test('files that belong together are one set, named after what they are for', async (t) => {
  const sets = certificateSets({
    tls: { certFile: '/c', keyFile: '/k', clientCaFile: '/ca' },
    upstreams: [
      { prefix: '/' },
      { prefix: '/a', caFile: '/a/ca' },
      { prefix: '/b', caFile: '/b/ca', certFile: '/b/c', keyFile: '/b/k' },
    ],
  })
  t.strictSame(
    sets.map((set) => [set.name, ...filesOf(set).map(({ setting, path }) => `${setting} ${path}`)]),
    [
      ['listener', 'listen.tls.certFile /c', 'listen.tls.keyFile /k', 'listen.tls.clientCaFile /ca'],
      ['upstream:/a', 'upstreams[1].caFile /a/ca'],
      ['upstream:/b', 'upstreams[2].certFile /b/c', 'upstreams[2].keyFile /b/k', 'upstreams[2].caFile /b/ca'],
    ],
  )
})

t.test('without files there is nothing', async (t) => {
  t.strictSame(certificateSets({ upstreams: [{ prefix: '/' }] }), [])
})
