/**
 * An upload in chunks of one byte does not become thousands of writes.
 *
 * @module
 */
import t from 'tap'
import { startScene } from '../support/scene.ts'

t.test('what one read brings of an upload in chunks of one byte goes on in few chunks', async (t) => {
  const scene = await startScene(t)
  const client = await scene.request('PUT /a', ['Transfer-Encoding: chunked'])
  await scene.upstream.until(() => (scene.upstream.bytes[0]?.length ?? 0) > 0, 'the head')
  client.send(`${'1\r\nx\r\n'.repeat(5000)}0\r\n\r\n`)
  t.equal((await client.response()).status, 200)
  const [request] = scene.upstream.requests
  t.equal(request?.body.length, 5000)
  const chunks = (scene.upstream.bytes[0]?.toString('latin1').match(/^[0-9a-f]+\r$/gm) ?? []).length
  t.ok(chunks < 500, `${chunks} chunks reach the upstream`)
})
