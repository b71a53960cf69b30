import t from 'tap'
import { createRoutes } from '../../src/gate/routes.ts'

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND']

function routes(options: Partial<Parameters<typeof createRoutes>[0]> = {}) {
  const routeOf = createRoutes({
    basePath: '',
    publicRoutes: [],
    corsPreflight: 'deny',
    forwardAuthPath: '',
    ...options,
  })
  return (method: string, path: string, preflight = false) => routeOf({ method, path, preflight })
}

t.test('the token endpoint is exactly two paths', async (t) => {
  const routeOf = routes()
  for (const path of ['/v2/auth/token', '/v2/auth/token/']) {
    t.equal(routeOf('POST', path), 'token_issue')
    t.equal(routeOf('GET', path), 'token_check')
    t.equal(routeOf('HEAD', path), 'token_check')
    for (const method of ['PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND', 'post', 'get'])
      t.equal(routeOf(method, path), 'token_method', `${method} ${path}`)
  }
})

t.test('every other spelling of them is a storage path', async (t) => {
  const routeOf = routes()
  for (const path of [
    ...['/', '/v2/auth/tokenx', '/v2/auth/toke', '/v2/auth/token//', '/v2/auth/token/x'],
    ...['/v2/auth/token/..;/x', '/v2/auth/token/../../b/k', '/v2/auth/token/%2e%2e/x'],
    ...['/v2/auth/token%2f', '/v2/auth/token%252f', '/v2/auth\\token', '/v2/auth/token\\'],
    ...['/v2/auth/token;x=1', '//v2/auth/token', '/v2//auth/token', '/V2/Auth/Token'],
    ...['/v2/auth/token%00', '/v2/auth/token%20', '/v2/auth/token.', '/v2/./auth/token'],
    ...['/x/../v2/auth/token', '/v2/auth/%74oken', '/b/v2/auth/token', '/metrics', '/livez', '/readyz'],
    ...['/healthz', '/status.json', '/.well-known/jwks.json'],
  ]) {
    for (const method of METHODS) t.equal(routeOf(method, path), 'proxy', `${method} ${path}`)
  }
})

t.test('a base path moves the token endpoint and leaves nothing behind', async (t) => {
  const routeOf = routes({ basePath: '/account' })
  t.equal(routeOf('POST', '/account/v2/auth/token'), 'token_issue')
  t.equal(routeOf('GET', '/account/v2/auth/token/'), 'token_check')
  t.equal(routeOf('PUT', '/account/v2/auth/token'), 'token_method')
  for (const path of [
    '/v2/auth/token',
    '/v2/auth/token/',
    '/Account/v2/auth/token',
    '/account//v2/auth/token',
  ])
    t.equal(routeOf('POST', path), 'proxy', path)
})

t.test('a public route is one method and one path', async (t) => {
  const routeOf = routes({
    publicRoutes: [
      { method: 'GET', path: '/healthz' },
      { method: 'OPTIONS', path: '/b' },
    ],
  })
  t.equal(routeOf('GET', '/healthz'), 'public')
  t.equal(routeOf('OPTIONS', '/b'), 'public')
  for (const method of ['HEAD', 'POST', 'OPTIONS', 'get', 'GETX'])
    t.equal(routeOf(method, '/healthz'), 'proxy', method)
  for (const path of [
    ...['/healthz/', '/Healthz', '//healthz', '/healthz;x', '/%68ealthz', '/healthz/..', '/health'],
    ...['/b'],
  ])
    t.equal(routeOf('GET', path), 'proxy', path)
})

t.test('a preflight needs a token unless the settings let it pass', async (t) => {
  t.equal(routes()('OPTIONS', '/b/k', true), 'proxy')
  const passing = routes({ corsPreflight: 'pass' })
  t.equal(passing('OPTIONS', '/b/k', true), 'public')
  t.equal(passing('OPTIONS', '/b/k', false), 'proxy')
  t.equal(passing('OPTIONS', '/v2/auth/token', true), 'token_preflight', 'which is never forwarded')
  t.equal(passing('OPTIONS', '/v2/auth/token', false), 'token_method')
})

t.test('other proxies ask for a decision at one path and below it', async (t) => {
  for (const forwardAuthPath of ['/auth', '/auth/']) {
    const routeOf = routes({ forwardAuthPath })
    for (const path of ['/auth', '/auth/', '/auth/b/k']) t.equal(routeOf('GET', path), 'forward_auth', path)
    for (const path of ['/authx', '/Auth', '/auth%2f', '/auth;x', '//auth', '/'])
      t.equal(routeOf('GET', path), 'proxy')
  }
  t.equal(routes({ forwardAuthPath: '/v2/' })('POST', '/v2/auth/token'), 'token_issue')
  t.equal(routes()('GET', '/'), 'proxy', 'without the setting there is no such path')
})
