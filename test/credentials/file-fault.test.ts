import t from 'tap'
import { fileFault, fileFaultCode } from '../../src/credentials/file-fault.ts'

t.test('a fault is told in words, without the path', async (t) => {
  const fault = Object.assign(new Error("ENOSPC: no space left, write '/etc/credentials.yaml'"), {
    code: 'ENOSPC',
  })
  t.equal(fileFault(fault), 'the disk is full')
  t.equal(fileFaultCode(fault), 'ENOSPC')
})

t.test('a fault we have no words for is told by its code', async (t) => {
  t.equal(fileFault(Object.assign(new Error('x'), { code: 'EMFILE' })), 'EMFILE')
  t.equal(fileFault(new Error('x')), 'unknown fault')
  t.equal(fileFault('x'), 'unknown fault')
})
