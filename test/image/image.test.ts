/** The Dockerfile and its build context: no image is built here. */
import { readFileSync } from 'node:fs'
import { validate } from 'dockerfile-utils'
import t from 'tap'
import { settingsSchema } from '../../src/config/schema.ts'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const DOCKERFILE = read('Dockerfile')
const stages = DOCKERFILE.split(/^FROM /m).slice(1)
const image = stages.at(-1) ?? ''

t.test('the Dockerfile passes its linter', async (t) => {
  t.strictSame(
    validate(DOCKERFILE).map(({ message, range }) => `line ${range.start.line + 1}: ${message}`),
    [],
  )
})

t.test('the image runs Node as an unprivileged user, and Node receives the signals', async (t) => {
  const last = (keyword: string) => [...image.matchAll(new RegExp(`^${keyword} (.*)$`, 'gm'))].at(-1)?.[1]
  t.equal(last('USER'), '65532:65532')
  t.strictSame(JSON.parse(last('ENTRYPOINT') ?? ''), ['/nodejs/bin/node', '/app/dist/main.js'])
  t.equal(last('CMD'), '["serve"]')
  t.equal(last('STOPSIGNAL'), 'SIGTERM')
  const { listen, admin } = settingsSchema.parse({})
  t.equal(last('EXPOSE'), `${listen.port} ${admin.port}`)
  t.ok(image.includes(`SIDECAR_ADMIN_PORT || ${admin.port}`), 'the health check asks the admin port')
  const [build, runtime] = [...DOCKERFILE.matchAll(/^ARG \w+_IMAGE=\S*?node(?:js)?:?(\d+)/gm)].map(
    ([, major]) => major,
  )
  t.equal(build, runtime, 'one Node compiles and runs')
})

t.test('the build context is an allowlist that includes everything the Dockerfile copies', async (t) => {
  const [first, ...allowed] = read('.dockerignore')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
  t.equal(first, '*')
  const copied = [...DOCKERFILE.matchAll(/^COPY (?!--from)(?:--\S+ )*(.+) \S+$/gm)].flatMap(
    ([, paths = '']) => paths.split(' '),
  )
  for (const path of copied) {
    const isAllowed = allowed.some((line) => line.slice(1).startsWith(path))
    t.ok(isAllowed, path)
  }
  for (const line of allowed) {
    t.match(line, /^!(?:package(?:-lock)?\.json|tsconfig\.json|LICENSE|src|scripts\/[\w-]+\.mjs)$/)
  }
})
