/**
 * The recipes of docs/restrict-a-credential.md, and real clients with restricted credentials,
 * against Apache's mod_dav.
 */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { APACHE, startApache } from '../support/apache.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { codeIn, tableUnder } from '../support/markdown.ts'
import { runToEnd, watchProcess, without } from '../support/other-programs.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const FILES = [
  'photos/p',
  'videos/v',
  'backups/old',
  'inbox/i',
  'releases/app/v1',
  'releases/b/v1',
  'home/ann/n',
  'home/bob/n',
  'tmp/t',
  'done/d',
  'reports/today.txt',
  'reports/other',
]

/** A sidecar in front of Apache with `FILES`. */
async function startDav(t: Test) {
  const apache = await startApache(t, FILES)
  const { port, mint } = await startSidecar(t, { upstreamUrl: apache.url })
  return { url: `http://127.0.0.1:${port}`, files: apache.files, mint }
}

interface Recipe {
  readonly passes: readonly string[]
  readonly refused: readonly string[]
}

/** Requests by the scope of the recipe, as `requestIn` reads them. They are sent in this order. */
const RECIPES: Readonly<Record<string, Recipe>> = {
  'storage.read:/': {
    passes: ['GET /photos/p', 'PROPFIND /', 'HEAD /tmp/t'],
    refused: ['PUT /photos/x new', 'DELETE /tmp/t', 'COPY /tmp/t to /tmp/u new'],
  },
  'storage.read:/photos': {
    passes: ['GET /photos/p', 'PROPFIND /photos/'],
    refused: ['GET /videos/v', 'PROPFIND /', 'PUT /photos/x new', 'GET /photosx'],
  },
  'storage.read:/photos storage.read:/videos': {
    passes: ['GET /photos/p', 'GET /videos/v'],
    refused: ['GET /tmp/t', 'DELETE /videos/v'],
  },
  'storage.read:/backups storage.create:/backups': {
    passes: [
      'PUT /backups/new new',
      'GET /backups/new',
      'MKCOL /backups/day',
      'COPY /backups/new to /backups/day/new new',
    ],
    refused: [
      'PUT /backups/old',
      'DELETE /backups/old',
      'MOVE /backups/old to /backups/older new',
      'COPY /backups/new to /tmp/x new',
    ],
  },
  'storage.create:/inbox': {
    passes: ['PUT /inbox/n new', 'MKCOL /inbox/m', 'HEAD /inbox/i'],
    refused: ['GET /inbox/n', 'PROPFIND /inbox/', 'PUT /inbox/i', 'DELETE /inbox/n'],
  },
  'storage.read:/ storage.modify:/releases/app': {
    passes: ['GET /home/bob/n', 'PUT /releases/app/v2', 'DELETE /releases/app/v1'],
    refused: ['PUT /releases/b/v2', 'MOVE /releases/app/v2 to /releases/b/v2'],
  },
  'storage.read:/home/ann storage.modify:/home/ann': {
    passes: ['PUT /home/ann/x', 'GET /home/ann/x', 'MOVE /home/ann/x to /home/ann/y', 'DELETE /home/ann/y'],
    refused: ['GET /home/bob/n', 'MOVE /home/ann/n to /home/bob/n', 'COPY /home/bob/n to /home/ann/b'],
  },
  'storage.read:/inbox storage.modify:/inbox storage.create:/done': {
    passes: ['GET /inbox/i', 'MOVE /inbox/i to /done/i new'],
    refused: ['MOVE /inbox/n to /done/d', 'GET /done/i', 'DELETE /done/d'],
  },
  'storage.modify:/tmp': {
    passes: ['DELETE /tmp/t', 'PUT /tmp/t'],
    refused: ['GET /tmp/t', 'PROPFIND /tmp/', 'DELETE /done/d'],
  },
  'storage.read:/reports/today.txt': {
    passes: ['GET /reports/today.txt', 'HEAD /reports/today.txt'],
    refused: ['GET /reports/other', 'PROPFIND /reports/'],
  },
}

/**
 * Reads a request such as `COPY /a to /b new`: `/b` is its `Destination`.
 * `new`: it must not replace an object.
 */
function requestIn(text: string, url: string) {
  const [, method = '', path = '', to, isNew] = /^(\w+) (\S+)(?: to (\S+))?( new)?$/.exec(text) ?? []
  const headers: Record<string, string> = {}
  if (method === 'PROPFIND') {
    headers['Depth'] = '1'
  }
  if (to !== undefined) {
    headers['Destination'] = url + to
    headers['Overwrite'] = isNew ? 'F' : 'T'
  } else if (isNew) {
    headers['If-None-Match'] = '*'
  }
  return { method, path, headers }
}

t.test('each recipe allows what it says', { skip: without(APACHE) }, async (t) => {
  const { url, mint } = await startDav(t)
  const scopes = tableUnder('docs/restrict-a-credential.md', '## Recipes').map(({ scope }) =>
    String(codeIn(scope)[0]),
  )
  t.same(Object.keys(RECIPES), scopes)
  for (const [scope, { passes, refused }] of Object.entries(RECIPES)) {
    const token = await mint({ claims: { scope } })
    const ask = async (text: string) => {
      const { method, path, headers } = requestIn(text, url)
      headers['Authorization'] = `Bearer ${token}`
      const response = await fetch(url + path, { method, headers, body: method === 'PUT' ? 'content' : null })
      await response.arrayBuffer()
      return [response.status, response.headers.get('proxy-status')?.includes('scope') ?? false]
    }
    for (const text of passes) {
      const [status] = await ask(text)
      t.ok(Number(status) < 300, `${scope}: ${text} is ${status}`)
    }
    for (const text of refused) {
      t.same(await ask(text), [403, true], `${scope}: not ${text}`)
    }
  }
})

t.test(
  'rclone with a read-only credential lists, copies, and cannot delete',
  { skip: without(APACHE) || without('rclone') },
  async (t) => {
    const { url, files, mint } = await startDav(t)
    const token = await mint({ claims: { scope: 'storage.read:/photos' } })
    const remote = `:webdav,url='${url}/photos',bearer_token='${token}':`
    const rclone = (...args: string[]) =>
      runToEnd(t, 'rclone', [...args, '--config', '/dev/null', '--retries', '1', '--low-level-retries', '1'])
    t.match(await rclone('lsf', remote), { code: 0, output: /^p$/m })
    const target = await temporaryDirectory(t)
    t.match(await rclone('copy', remote, target), { code: 0 })
    t.ok(existsSync(join(target, 'p')))
    const { code, output } = await rclone('deletefile', `${remote}p`)
    t.not(code, 0)
    t.match(output, /403 Forbidden/)
    t.comment(output)
    t.ok(existsSync(join(files, 'photos/p')))
  },
)

t.test('a condition in another letter case protects nothing', { skip: without('rclone') }, async (t) => {
  const files = t.testdir({ in: { a: 'new' }, out: { a: 'old' } })
  const port = await freePort()
  const address = `127.0.0.1:${port}`
  const server = spawn('rclone', ['serve', 'webdav', files, '--addr', address, '--config', '/dev/null'])
  watchProcess(t, server)
  const upstreamUrl = `http://${address}`
  await eventually(() => fetch(upstreamUrl).catch(() => undefined), 'rclone')
  const sidecar = await startSidecar(t, { upstreamUrl })
  const creator = await sidecar.mint({ claims: { scope: 'storage.read:/in storage.create:/out' } })
  const url = `http://127.0.0.1:${sidecar.port}`
  const copy = async (token: string, overwrite: string) => {
    const headers = { Authorization: `Bearer ${token}`, Destination: `${url}/out/a`, Overwrite: overwrite }
    const response = await fetch(`${url}/in/a`, { method: 'COPY', headers })
    await response.arrayBuffer()
    return response.status
  }
  const stored = () => readFileSync(join(files, 'out/a'), 'utf8')
  for (const overwrite of ['f', 'T', 't', 'F F', '"F"', 'F,F', '']) {
    t.equal(await copy(creator, overwrite), 403, overwrite)
  }
  t.equal(await copy(creator, 'F'), 412, 'rclone keeps what exists')
  t.equal(stored(), 'old')
  t.equal(await copy(sidecar.token, 'f'), 204, 'rclone replaces it')
  t.equal(stored(), 'new')
})

t.test('cadaver moves within the scope only', { skip: without(APACHE) || without('cadaver') }, async (t) => {
  const { url, files, mint } = await startDav(t)
  const authorization = `Bearer ${await mint({ claims: { scope: 'storage.read:/ storage.modify:/inbox' } })}`
  // cadaver sends no token by itself.
  const adding = createServer((req, res) => {
    const { method, url: path, headers } = req
    const asked = request(url, { method, path, headers: { ...headers, authorization } }, (answer) => {
      res.writeHead(answer.statusCode ?? 0, answer.headers)
      answer.pipe(res)
    })
    req.pipe(asked)
  })
  const port = await listen(t, adding)
  const lines = ['move /inbox/i /inbox/moved', 'move /inbox/moved /done/stolen', 'quit', '']
  const { output } = await runToEnd(t, 'cadaver', [`http://127.0.0.1:${port}/`], {
    stdin: lines.join('\n'),
  })
  t.match(output, /succeeded[\s\S]*403 Forbidden/)
  t.equal(existsSync(join(files, 'inbox/moved')), true)
  t.equal(existsSync(join(files, 'done/stolen')), false)
})
