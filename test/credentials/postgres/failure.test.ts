import pg from 'pg'
import t from 'tap'
import { postgresFailure } from '../../../src/credentials/postgres/failure.ts'

const RUN_MIGRATE =
  'run `storage-auth-sidecar credentials migrate --postgres-url-file FILE` with a role that may create them'

function reported(code: string, message = 'm') {
  const error = new pg.DatabaseError(message, message.length, 'error')
  error.code = code
  error.detail = 'Failing row contains (hush).'
  return error
}

const coded = (code: string, message = 'hush') => Object.assign(new Error(message), { code })

t.test('each failure is explained by what to do about it, without its detail', async (t) => {
  const faults: [unknown, string, string][] = [
    [coded('ECONNREFUSED'), 'down', 'it refuses the connection'],
    [new AggregateError([], 'all'), 'down', 'the connection failed (all)'],
    [coded('ENOENT'), 'down', 'there is no such socket'],
    [coded('ENOTFOUND'), 'down', 'its host name cannot be resolved'],
    [coded('EAI_AGAIN'), 'down', 'its host name cannot be resolved now'],
    [coded('ECONNRESET'), 'down', 'the connection failed (ECONNRESET)'],
    [
      new Error('Connection terminated unexpectedly'),
      'down',
      'the connection failed (Connection terminated unexpectedly)',
    ],
    ['hush', 'down', 'it failed for an unknown reason'],
    [
      reported('57P03', 'the database system is starting up'),
      'down',
      'it reports: the database system is starting up (57P03)',
    ],
    [reported('53300', 'too many'), 'down', 'it reports: too many (53300)'],
    [reported('57014', 'canceled'), 'timeout', 'it reports: canceled (57014)'],
    [coded('ETIMEDOUT'), 'timeout', 'it does not answer in time'],
    [new Error('Query read timeout'), 'timeout', 'it does not answer in time'],
    [new Error('Connection terminated due to connection timeout'), 'timeout', 'it does not answer in time'],
    [new Error('timeout exceeded when trying to connect'), 'timeout', 'it does not answer in time'],
    [reported('42P01'), 'unusable', `its tables are missing: ${RUN_MIGRATE}`],
    [reported('3F000'), 'unusable', `its tables are missing: ${RUN_MIGRATE}`],
    [reported('42703'), 'unusable', `its tables are not up to date: ${RUN_MIGRATE}`],
    [
      reported('42501'),
      'unusable',
      'this user lacks a privilege there: `credentials migrate --help` shows the grants it needs',
    ],
    [reported('3D000'), 'unusable', 'there is no database of that name'],
    [reported('28000'), 'unusable', 'it does not let this user in'],
    [reported('28P01'), 'unusable', 'it does not let this user in with this password'],
    [reported('P0001', 'its encoding must be UTF8'), 'unusable', 'its encoding must be UTF8'],
    [new Error('The server does not support SSL connections'), 'unusable', 'it does not offer TLS'],
    [
      coded('DEPTH_ZERO_SELF_SIGNED_CERT'),
      'unusable',
      'its TLS certificate or protocol is not accepted (DEPTH_ZERO_SELF_SIGNED_CERT)',
    ],
    [
      coded('UNABLE_TO_VERIFY_LEAF_SIGNATURE'),
      'unusable',
      'its TLS certificate or protocol is not accepted (UNABLE_TO_VERIFY_LEAF_SIGNATURE)',
    ],
    [
      coded('ERR_SSL_WRONG_VERSION_NUMBER'),
      'unusable',
      'its TLS certificate or protocol is not accepted (ERR_SSL_WRONG_VERSION_NUMBER)',
    ],
  ]
  for (const [thrown, kind, message] of faults) t.same(postgresFailure(thrown), { kind, message }, message)
})
