import type { ChildProcess } from 'node:child_process'
import { EventEmitter } from 'node:events'
import t from 'tap'
import { createUntakenCloser } from '../../src/workers/untaken-connection.ts'

/** A process that is handed connections. */
function forked(attend: ReturnType<typeof createUntakenCloser>) {
  const sent: unknown[][] = []
  const child = Object.assign(new EventEmitter(), { send: (...args: unknown[]) => sent.push(args) > 0 })
  attend(child as unknown as ChildProcess)
  return { child, sent, send: child.send, exit: () => child.emit('exit') }
}

/** A connection. */
function connection() {
  const made = { closed: 0, close: () => void made.closed++ }
  return made
}

t.test('what a worker was handed last is closed when it dies', async (t) => {
  const { send, sent, exit } = forked(createUntakenCloser())
  const [taken, untaken] = [connection(), connection()]
  t.ok(send('newconn', taken))
  send('newconn', untaken)
  send('something else', undefined)
  exit()
  t.same([taken.closed, untaken.closed], [0, 1])
  t.same(sent, [
    ['newconn', taken],
    ['newconn', untaken],
    ['something else', undefined],
  ])
})

t.test('what it did not want and another worker has now is left alone', async (t) => {
  const attend = createUntakenCloser()
  const [one, other] = [forked(attend), forked(attend)]
  const handed = connection()
  one.send('newconn', handed)
  other.send('newconn', handed)
  one.exit()
  t.equal(handed.closed, 0)
  other.exit()
  t.equal(handed.closed, 1)
})

t.test('a worker that was never handed anything leaves nothing', async () => {
  const { send, exit } = forked(createUntakenCloser())
  send('hello', null)
  exit()
})
