/** A PostgreSQL store of one replica, as a test sees it. */
import type { Test } from 'tap'
import { createCredentialChecks, type Login } from '../../src/credentials/credential-checks.ts'
import { type DatabaseOptions, openDatabase } from '../../src/credentials/postgres/database.ts'
import type { RevocableToken } from '../../src/token/caller.ts'
import { ISSUER } from './tokens.ts'

/** Starts a store; it is stopped at the end of the test. */
export async function startStore(
  t: Pick<Test, 'teardown'>,
  urlFile: string,
  options: Partial<DatabaseOptions> = {},
) {
  /** Fields and message of each line. */
  const log: Record<string, unknown>[] = []
  const reloads: string[] = []
  const write = (fields: object, message: string) => {
    log.push({ ...fields, message })
  }
  /** Of each change: whether only revocations were added. */
  const onlyAdded: boolean[] = []
  const read = await openDatabase({
    urlFile,
    poolSize: 3,
    log: { info: write, warn: write },
    onReload: (result) => reloads.push(result),
    endedTokens: () => ({ nowMs: Date.now(), issuedBeforeMs: Date.now() - 86_400_000 }),
    ...options,
  })
  if (!read.ok) {
    throw new Error(read.problems.join('\n'))
  }
  const { value: database } = read
  const checks = createCredentialChecks(database, Date.now)
  const origin = { network: 'test', hasLeft: () => false }
  const authenticate = async (login: Login) => (await checks.authenticate(login, origin)).outcome
  const store = { ...checks, authenticate }
  database.subscribe((subject) => {
    onlyAdded.push(subject === 'revocations')
  })
  database.start()
  const stop = () => database.stop()
  t.teardown(stop)
  const { endToken, whenLoaded: opened } = database
  const revocations = () => ({
    size: database.revocations().size,
    isRevoked: (token: RevocableToken, issuer = ISSUER) => database.revocations().isRevoked(token, issuer),
  })
  const state = () => database.condition().state
  const reload = () => database.reload()
  const changes = () => onlyAdded.length
  return { opened, endToken, revocations, state, reload, stop, store, log, reloads, onlyAdded, changes }
}

/** Starts a store that must open. */
export async function openStore(...parameters: Parameters<typeof startStore>) {
  const store = await startStore(...parameters)
  const opened = await store.opened
  if (!opened.ok) {
    throw new Error(opened.problems.join('\n'))
  }
  return store
}

/** Why a test file is skipped. */
export const NO_SERVER = 'no PostgreSQL server can be had on this machine'
