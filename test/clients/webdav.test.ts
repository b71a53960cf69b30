/** What docs/known-clients.md tells Apache and nginx about a `Destination: https://...` that reaches them over plain HTTP. */
import { spawn } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { APACHE, apacheConfig } from '../support/apache.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { without } from '../support/other-programs.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const snippet = (language: string) =>
  readFileSync('docs/known-clients.md', 'utf8').split(`\`\`\`${language}\n`)[1]?.split('```')[0] ?? ''

interface Server {
  readonly program: string
  readonly args: readonly string[]
  readonly refusedStatus: number
  /** A complete configuration; ports 9000 and 9001 are replaced. */
  readonly config: (advice: string, directory: string) => string
}

const SERVERS: Readonly<Record<string, Server>> = {
  apache: {
    program: APACHE,
    args: ['-DFOREGROUND', '-f'],
    refusedStatus: 502,
    config: apacheConfig,
  },
  nginx: {
    program: '/usr/sbin/nginx',
    args: ['-e', 'stderr', '-g', 'daemon off;', '-c'],
    refusedStatus: 400,
    config: (advice, directory) => {
      const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
        (kind) => `${kind}_temp_path ${directory}/${kind};`,
      )
      const port = advice === '' ? 9000 : 9001
      return `pid ${directory}/pid; events {} http { access_log off; ${paths.join(' ')} ${advice}
        server { listen 127.0.0.1:${port}; root ${directory}/files; dav_methods PUT COPY MOVE; } }`
    },
  },
}

for (const [name, { program, args, refusedStatus, config }] of Object.entries(SERVERS)) {
  t.test(`${name} copies and moves to https as documented`, { skip: without(program) }, async (t) => {
    for (const advice of ['', snippet(name)]) {
      const directory = await temporaryDirectory(t)
      mkdirSync(join(directory, 'files'))
      for (const path of [directory, join(directory, 'files')]) chmodSync(path, 0o777) // the servers' workers are other users
      const ports = [await freePort(), await freePort()]
      const file = join(directory, 'config')
      writeFileSync(
        file,
        config(advice, directory).replaceAll(/\b900([01])\b/g, (_, at) => String(ports[at])),
      )
      const server = spawn(program, [...args, file], { stdio: 'ignore' })
      t.teardown(() => server.kill())
      const upstreamUrl = `http://127.0.0.1:${ports[0]}`
      await eventually(() => fetch(upstreamUrl).catch(() => undefined), name)
      const { port, token } = await startSidecar(t, { upstreamUrl })
      const ask = async (method: string, path: string, destination = '', body?: string) => {
        const headers = { Authorization: `Bearer ${token}`, ...(destination && { Destination: destination }) }
        const response = await fetch(`http://127.0.0.1:${port}${path}`, {
          method,
          headers,
          body: body ?? null,
        })
        return [response.status, await response.text()] as const
      }
      await ask('PUT', '/a%20b', '', 'content')
      const [copied] = await ask('COPY', '/a%20b', `https://127.0.0.1:${port}/c%25d`)
      if (advice === '') {
        t.equal(copied, refusedStatus, 'without it, the destination is another server')
        continue
      }
      t.ok(copied < 300)
      const [moved] = await ask('MOVE', '/c%25d', `https://127.0.0.1:${port}/%C3%BC`)
      t.ok(moved < 300)
      t.equal((await ask('GET', '/c%25d'))[0], 404)
      t.strictSame(await ask('GET', '/%C3%BC'), [200, 'content'])
      if (name === 'nginx') t.equal((await ask('COPY', '/a%20b', 'https://other.example/x'))[0], 400)
    }
  })
}
