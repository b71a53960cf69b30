/**
 * Fastify as a token-checking proxy, put together from its own plugins.
 *
 *     node fastify.js PORT UPSTREAM-URL ALGORITHM KEY-FILE
 *
 * @module
 */
import { readFileSync } from 'node:fs'
import httpProxy from '@fastify/http-proxy'
import jwt from '@fastify/jwt'
import Fastify from 'fastify'

const [port, upstream, algorithm, keyFile] = process.argv.slice(2)
const key = readFileSync(keyFile, 'utf8')

const app = Fastify({ logger: false, keepAliveTimeout: 75_000 })
await app.register(jwt, {
  secret: algorithm === 'HS256' ? key : { private: '', public: key },
  verify: {
    algorithms: [algorithm],
    allowedIss: 'storage-account-api',
    allowedAud: 'storage-api',
    cache: 10_000, // as many as the sidecar remembers
  },
})
await app.register(httpProxy, {
  upstream,
  undici: { connections: 256, pipelining: 1 },
  preHandler: async (request) => {
    await request.jwtVerify()
  },
  replyOptions: {
    rewriteRequestHeaders: (request, { authorization: _, ...headers }) => ({
      ...headers,
      'x-authenticated-account-id': request.user.sub,
    }),
  },
})
await app.listen({ host: '127.0.0.1', port: Number(port), backlog: 4096 })
