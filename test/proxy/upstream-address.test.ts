import t from 'tap'
import { upstreamAddress } from '../../src/proxy/upstream-connection.ts'

t.test('a request without Host gets the one of the URL', async (t) => {
  for (const [url, host] of [
    ['http://storage.internal:9000', 'storage.internal:9000'],
    ['http://storage.internal:80/', 'storage.internal'],
    ['HTTP://Storage.Internal', 'storage.internal'],
    ['http://[::1]:9000', '[::1]:9000'],
    ['https://storage.internal:8443', 'storage.internal:8443'],
    ['unix:/run/storage/api.sock', 'localhost'],
  ] as const)
    t.equal(upstreamAddress(url).host, host, url)
})
