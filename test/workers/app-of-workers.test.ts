import t from 'tap'
import { StoppedWhileStarting } from '../../src/ops/life-cycle.ts'
import { UnusableTrust } from '../../src/reload/trust.ts'
import { revive } from '../../src/workers/app-of-workers.ts'
import { plainError } from '../../src/workers/messages.ts'

t.test('an error of a worker is what it was, to whoever explains it', async (t) => {
  const overTheChannel = (error: Error) => revive(JSON.parse(JSON.stringify(plainError(error))))
  for (const error of [new UnusableTrust('keys: none'), new StoppedWhileStarting('stopped')]) {
    t.equal(overTheChannel(error).constructor, error.constructor)
    t.equal(overTheChannel(error).message, error.message)
  }
  const inUse = Object.assign(new Error('in use'), {
    code: 'EADDRINUSE',
    syscall: 'listen',
    address: '::',
    port: 80,
  })
  t.match(overTheChannel(inUse), { ...inUse, message: 'in use' })
})
