/**
 * What `suspicions.ts` watches of the sources, and which changes of them are suspect.
 * A new kind of source adds a state for each subject that it has.
 */
import { eachInTurns } from '../base/each-in-turns.ts'
import type { CredentialList } from '../credentials/credential-list.ts'
import type { FeedFollower } from '../credentials/feed/follower.ts'
import type { CredentialsDatabase } from '../credentials/postgres/database.ts'
import { MAX_REMOVED_BY_COMMAND, type RevocationList } from '../credentials/revocation-list.ts'
import { fingerprintOfKeys, type KeyRing } from '../keys/key-ring.ts'
import type { RemoteKeys } from '../keys/remote-keys.ts'
import type { Reloadable } from '../reload/reloadable.ts'
import { type AuthSources, endedTokensOf, type SourceOptions } from './auth-sources.ts'
import type { WatchedState } from './suspicions.ts'

const GONE_BACK =
  'an earlier state is back, as from a backup: what was disabled or revoked since then is accepted again'
const BECAME_EMPTY = 'the credentials became empty: every login and token is refused'

const wereLost = (count: number) =>
  count === 1
    ? '1 revocation was lost: its tokens are accepted again'
    : `${count} revocations were lost: their tokens are accepted again`

type TokenTimes = Pick<SourceOptions, 'config' | 'now'>

export function watchedStates(options: SourceOptions, sources: AuthSources): WatchedState[] {
  const { keys, credentials, revocations, token } = options.config
  const { keyFiles, credentialsFile, revocationsFile, database, feed, keySets } = sources
  const ownKeySet = keySets.find(({ issuer }) => issuer === token.issuer)
  const states: WatchedState[] = []
  if (keyFiles !== undefined && keys.directory !== undefined) {
    states.push({ ...ofFile(keys.directory, keyFiles), ...keysState(keyFiles.current) })
  }
  if (ownKeySet !== undefined && keys.jwksUrl !== undefined) {
    states.push(keySetState(keys.jwksUrl, ownKeySet))
  }
  if (credentialsFile !== undefined && credentials.file !== undefined) {
    const file = ofFile(credentials.file, credentialsFile)
    states.push({ ...file, ...credentialsState(credentialsFile.current) })
  }
  if (revocationsFile !== undefined) {
    const file = ofFile(revocations.file, revocationsFile)
    states.push({ ...file, ...revocationsState(options, revocationsFile.current) })
  }
  if (database !== undefined) {
    states.push(...databaseStates(database))
  }
  if (feed !== undefined) {
    states.push(...feedStates(options, feed))
  }
  return states
}

const ofFile = (file: string, source: Pick<Reloadable<unknown>, 'subscribe'>) => ({
  file,
  origin: () => ({ path: file }),
  subscribe: (onChange: () => void) => source.subscribe(onChange),
})

function keysState(ring: () => KeyRing | undefined) {
  return {
    subject: 'keys',
    fingerprint() {
      const loaded = ring()
      return loaded && fingerprintOfKeys(loaded)
    },
    suspicion: () => undefined,
    trust() {},
  } as const
}

function keySetState(jwksUrl: string, keySet: RemoteKeys): WatchedState {
  return {
    ...keysState(() => (keySet.state().loaded ? keySet.ring() : undefined)),
    origin: () => ({ from: new URL(jwksUrl).origin }),
    subscribe: (onChange) => keySet.subscribe(onChange),
  }
}

export function credentialsState(current: () => CredentialList) {
  let trustedSize = current().size
  return {
    subject: 'credentials',
    fingerprint: () => current().fingerprint,
    suspicion: () => (trustedSize > 0 && current().size === 0 ? BECAME_EMPTY : undefined),
    trust() {
      trustedSize = current().size
    },
  } as const
}

/** `current`: each version must be a new list, which is compared with the last trusted one. */
export function revocationsState(options: TokenTimes, current: () => RevocationList) {
  let trusted = current()
  return {
    subject: 'revocations',
    fingerprint: () => current().fingerprint,
    async suspicion(isOlder: boolean) {
      const lost = await countLost(trusted, current(), options)
      if (lost > 0 && isOlder) {
        return `an older file is back: ${wereLost(lost)}`
      }
      return lost > MAX_REMOVED_BY_COMMAND ? wereLost(lost) : undefined
    },
    trust() {
      trusted = current()
    },
  } as const
}

/** They take 1 to 3 ms. */
const COMPARED_PER_TURN = 5000

async function countLost(
  before: RevocationList,
  after: RevocationList,
  options: TokenTimes,
): Promise<number> {
  const ended = endedTokensOf(options)
  let lost = 0
  await eachInTurns(before.names(), COMPARED_PER_TURN, (revocation) => {
    if (before.isLostIn(after, revocation, ended)) {
      lost++
    }
  })
  return lost
}

/** The database itself knows which revocations it has lost: it changes its list in place. */
function databaseStates(database: CredentialsDatabase): WatchedState[] {
  const ofDatabase = {
    origin: () => ({ database: database.label() }),
    subscribe: (onChange: () => void) => database.subscribe(onChange),
  }
  const whenLoaded = (fingerprint: number) => (database.isLoaded() ? fingerprint : undefined)
  const credentials = credentialsState(database.list)
  return [
    {
      ...ofDatabase,
      ...credentials,
      fingerprint: () => whenLoaded(credentials.fingerprint()),
      suspicion: () => credentials.suspicion() ?? (database.suspicions().hasGoneBack ? GONE_BACK : undefined),
    },
    {
      ...ofDatabase,
      subject: 'revocations',
      fingerprint: () => whenLoaded(database.revocations().fingerprint),
      suspicion() {
        const { lostRevocations } = database.suspicions()
        return lostRevocations > 0 ? wereLost(lostRevocations) : undefined
      },
      trust() {},
    },
  ]
}

/** Changes do not make a new list of revocations. A whole state makes one, which may lack what was there. */
function feedStates(options: SourceOptions, feed: FeedFollower): WatchedState[] {
  const ofFeed = {
    origin: () => ({ from: feed.from }),
    subscribe(onChange: () => void) {
      feed.subscribe(onChange)
      feed.whenLoaded.then(onChange) // `feed.subscribe` does not report the first state, which is trusted
    },
  }
  let hadCredentials = feed.countActive() > 0
  let trusted = feed.revocations()
  return [
    {
      ...ofFeed,
      subject: 'credentials',
      fingerprint: () => feed.state()?.fingerprint,
      suspicion: () => (hadCredentials && feed.countActive() === 0 ? BECAME_EMPTY : undefined),
      trust() {
        hadCredentials = feed.countActive() > 0
      },
    },
    {
      ...ofFeed,
      subject: 'revocations',
      fingerprint: () => feed.state()?.revocations.fingerprint,
      async suspicion() {
        const lost = await countLost(trusted, feed.revocations(), options)
        return lost > MAX_REMOVED_BY_COMMAND ? wereLost(lost) : undefined
      },
      trust() {
        trusted = feed.revocations()
      },
    },
  ]
}
