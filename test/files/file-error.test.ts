import t from 'tap'
import { fileErrorCode, fileErrorReason } from '../../src/reload/files.ts'

t.test('an error is told in words, without the path', async (t) => {
  const error = Object.assign(new Error("ENOSPC: no space left, write '/etc/credentials.yaml'"), {
    code: 'ENOSPC',
  })
  t.equal(fileErrorReason(error), 'the disk is full')
  t.equal(fileErrorCode(error), 'ENOSPC')
})

t.test('an error we have no words for is told by its code', async (t) => {
  t.equal(fileErrorReason(Object.assign(new Error('x'), { code: 'EMFILE' })), 'EMFILE')
  t.equal(fileErrorReason(new Error('x')), 'unknown fault')
  t.equal(fileErrorReason('x'), 'unknown fault')
})
