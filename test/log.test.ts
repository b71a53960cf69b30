import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, openSync, readFileSync, rmdirSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { createLog, loggable } from '../src/base/log.ts'
import { eventually } from './support/eventually.ts'
import { listen } from './support/listen.ts'
import { rawClient } from './support/raw-client.ts'

t.test('only name, code, message and stack of an error are logged', async (t) => {
  const lines: string[] = []
  const log = createLog('info', {
    write: (line) => {
      lines.push(line)
    },
  })
  // Node's error for a malformed request carries the raw bytes.
  const server = createServer()
  const client = await rawClient(t, await listen(t, server))
  client.send('GET / HTTP/1.1\r\nAuthorization: Bearer canary\r\nbad header\r\n\r\n')
  const [error] = await once(server, 'clientError')
  client.socket.destroy()
  t.ok(error.rawPacket.includes('canary'), 'the danger is real')
  log.error({ err: error }, 'fault')
  log.error({ err: new TypeError('plain') }, 'fault')
  log.error({ err: 'canary' }, 'fault')
  t.notMatch(lines.join(''), /canary/)
  const [first, second, third] = lines.map((line) => JSON.parse(line))
  t.match(first, { level: 50, msg: 'fault', err: { type: 'Error', code: /^HPE_/, message: /./, stack: /./ } })
  t.match(second, { err: { type: 'TypeError', message: 'plain' } })
  t.strictSame(third.err, { type: 'string' })
})

t.test('fields that may hold a token or a secret are redacted', async (t) => {
  const lines: string[] = []
  const log = createLog('info', {
    write: (line) => {
      lines.push(line)
    },
  })
  log.info({ authorization: 'canary', token: 'canary', secret: 'canary', headers: ['canary'] }, 'words')
  t.notMatch(lines.join(''), /canary/)
})

t.test('client text is truncated, and control characters and line breaks are escaped', async (t) => {
  t.equal(loggable('/plain path/é/\u{1F600}'), '/plain path/é/\u{1F600}')
  const escaped = String.raw`a\u000d\u000ab\u0009c\u0000d\u001b[2Je\u007ff\u009bg\u2028h\u2029i\u202ej\ufeffk`
  t.equal(loggable('a\r\nb\tc\0d\x1b[2Je\x7ff\x9bg\u2028h\u2029i\u202ej\ufeffk'), escaped)
  t.equal(loggable('x'.repeat(256)), 'x'.repeat(256))
  t.equal(loggable('x'.repeat(10_240)), `${'x'.repeat(256)}…`)
  t.equal(loggable('xyz', 2), 'xy…')
})

/**
 * Logs 3 MB, then a line for each line of its standard input; reports the dropped lines on standard error.
 */
const WRITER = `
  import { LogDestination } from ${JSON.stringify(new URL('../src/base/log.ts', import.meta.url).href)}
  const destination = new LogDestination()
  for (let at = 0; at < 3000; at++) {
    destination.write('x'.repeat(999) + '\\n')
  }
  process.stdin.on('data', (line) => destination.write(line))
  setInterval(() => process.stderr.write(destination.dropped + '\\n'), 50)
`

t.test('a log whose disk was full goes on when there is room, and counts what it dropped', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'full-disk-'))
  const mount = (...options: string[]) =>
    spawnSync('mount', ['-t', 'tmpfs', ...options, 'tmpfs', directory]).status === 0
  if (!mount('-o', 'size=64k')) {
    t.pass('skipped', { skip: 'cannot mount a file system' })
    return
  }
  const file = join(directory, 'log')
  const loader = import.meta.resolve('../scripts/strip-types.mjs')
  const { NODE_OPTIONS: _, ...env } = process.env
  const writer = spawn(process.execPath, [`--import=${loader}`, '--input-type=module', '-e', WRITER], {
    env,
    stdio: ['pipe', openSync(file, 'a'), 'pipe'],
  })
  t.teardown(() => {
    writer.kill('SIGKILL')
    spawnSync('umount', ['-l', directory])
    rmdirSync(directory)
  })
  let dropped = 0
  writer.stderr?.on('data', (text) => {
    const counts = String(text).trim().split('\n')
    dropped = Number(counts.at(-1))
  })
  await eventually(() => dropped > 0, 'dropped lines')
  t.ok(readFileSync(file).length <= 65_536)
  mount('-o', 'remount,size=8m')
  await eventually(() => readFileSync(file).length > 1_000_000, 'the queued lines')
  writer.stdin?.write('a later line\n')
  await eventually(() => readFileSync(file, 'utf8').endsWith('\na later line\n'), 'a later line')
  const whole = readFileSync(file, 'utf8').match(/^x{999}$/gm)
  t.equal(dropped, 3000 - (whole?.length ?? 0), 'no line is lost without being counted')
})
