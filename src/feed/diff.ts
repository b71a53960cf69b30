/**
 * The changes between two states of the store, as the feed sends them.
 * In: two states, or what was touched between them. Out: for each entry that differs, its change.
 *
 *   apply(diff(a, b), a) = b      apply(joined([diff(a, b), diff(b, c)]), a) = c
 *
 * The passing of time is no change: entries carry when they end, and followers obey it.
 */
import type { Credential, CredentialList, CredentialName } from '../credentials/credential-list.ts'
import {
  credentialKey,
  type FeedCredential,
  type FeedRevocation,
  revocationKey,
} from '../credentials/feed/format.ts'
import type { Revocation, RevocationList } from '../credentials/revocation-list.ts'

export interface FeedState {
  readonly credentials: CredentialList
  readonly revocations: readonly RevocationList[]
}

export interface Change<Entry> {
  readonly isSet: boolean
  /** If it is removed, only what identifies it. */
  readonly entry: Entry
  /** Epoch milliseconds, or `Infinity`. */
  readonly endsAtMs: number
}

/** By the key of the entry, so that a later change replaces an earlier one. */
export interface Changes {
  readonly credentials: ReadonlyMap<string, Change<FeedCredential>>
  readonly revocations: ReadonlyMap<string, Change<FeedRevocation>>
}

export const diff = (former: FeedState, fresh: FeedState): Changes => ({
  credentials: diffCredentials(former.credentials, fresh.credentials),
  revocations: diffRevocations(former.revocations, fresh.revocations),
})

/** All changes, one after the other: a later one replaces an earlier one. */
export function joined(all: readonly Changes[]): Changes {
  const credentials = new Map<string, Change<FeedCredential>>()
  const revocations = new Map<string, Change<FeedRevocation>>()
  for (const changes of all) {
    for (const [key, change] of changes.credentials) {
      credentials.set(key, change)
    }
    for (const [key, change] of changes.revocations) {
      revocations.set(key, change)
    }
  }
  return { credentials, revocations }
}

export function diffCredentials(former: CredentialList, fresh: CredentialList): Changes['credentials'] {
  const changes = new Map<string, Change<FeedCredential>>()
  if (former === fresh) {
    return changes
  }
  for (const credential of fresh.all()) {
    if (!isSame(former.find(credential), credential)) {
      changes.set(credentialKey(credential), changeTo(credential))
    }
  }
  for (const credential of former.all()) {
    if (!credential.disabled && fresh.find(credential) === undefined) {
      changes.set(credentialKey(credential), removal(credential))
    }
  }
  return changes
}

/** @param touched - the credentials that were added, changed or removed since the former state */
export function touchedCredentials(
  touched: readonly CredentialName[],
  fresh: CredentialList,
): Changes['credentials'] {
  const changes = new Map<string, Change<FeedCredential>>()
  for (const name of touched) {
    const credential = fresh.find(name)
    changes.set(credentialKey(name), credential === undefined ? removal(name) : changeTo(credential))
  }
  return changes
}

/** Whether followers have the same of both. They have nothing of a disabled credential. */
function isSame(former: Credential | undefined, fresh: Credential): boolean {
  if (former === undefined || former.disabled) {
    return fresh.disabled
  }
  if (fresh.disabled) {
    return false
  }
  return former.expiresAtMs === fresh.expiresAtMs && (former.scope ?? '') === (fresh.scope ?? '')
}

const changeTo = (credential: Credential): Change<FeedCredential> =>
  credential.disabled
    ? removal(credential)
    : { isSet: true, entry: feedCredential(credential), endsAtMs: credential.expiresAtMs }

const removal = ({ accountId, accessKey }: CredentialName): Change<FeedCredential> => ({
  isSet: false,
  entry: { accountId, accessKey },
  endsAtMs: Number.POSITIVE_INFINITY,
})

/** Names each member: a credential also has the hash of its secret. */
export function feedCredential({ accountId, accessKey, expiresAtMs, scope }: Credential): FeedCredential {
  const entry = { accountId, accessKey }
  const ending =
    expiresAtMs === Number.POSITIVE_INFINITY ? entry : { ...entry, expiresAt: timeText(expiresAtMs) }
  return scope == null ? ending : { ...ending, scope }
}

/** A list that is in both states has not changed. */
export function diffRevocations(
  former: readonly RevocationList[],
  fresh: readonly RevocationList[],
): Changes['revocations'] {
  const replaced = former.filter((list) => !fresh.includes(list))
  const added = fresh.filter((list) => !former.includes(list))
  const changes = new Map<string, Change<FeedRevocation>>()
  for (const revocation of allOf([...replaced, ...added])) {
    const endsAtMs = endIn(fresh, revocation)
    if (endsAtMs !== endIn(former, revocation)) {
      changes.set(revocationKey(revocation), revocationChange(revocation, endsAtMs))
    }
  }
  return changes
}

/** @param touched - the revocations that were added or removed since the former state */
export function touchedRevocations(
  touched: readonly Revocation[],
  fresh: readonly RevocationList[],
): Changes['revocations'] {
  const changes = new Map<string, Change<FeedRevocation>>()
  for (const revocation of touched) {
    changes.set(revocationKey(revocation), revocationChange(revocation, endIn(fresh, revocation)))
  }
  return changes
}

/** The latest end of a revocation that several lists have. Undefined if none has it. */
export function endIn(lists: readonly RevocationList[], revocation: Revocation): number | undefined {
  const ends = lists.map((list) => list.endOf(revocation)).filter((end) => end !== undefined)
  return ends.length === 0 ? undefined : Math.max(...ends)
}

function* allOf(lists: readonly RevocationList[]): Generator<Revocation> {
  for (const list of lists) {
    yield* list.all()
  }
}

export function revocationChange(
  revocation: Revocation,
  endsAtMs: number | undefined,
): Change<FeedRevocation> {
  const isSet = endsAtMs !== undefined
  const expiresAtMs = endsAtMs === Number.POSITIVE_INFINITY ? undefined : endsAtMs
  const entry = feedRevocation({ ...revocation, expiresAtMs }, isSet)
  return { isSet, entry, endsAtMs: endsAtMs ?? Number.POSITIVE_INFINITY }
}

/** @param hasEnd - whether the entry says when it ends, which does not identify it */
function feedRevocation(revocation: Revocation, hasEnd: boolean): FeedRevocation {
  const { jti, issuer, accountId, accessKey, issuedBeforeMs, expiresAtMs } = revocation
  const entry: Record<string, string> = {}
  const members = { jti, issuer, accountId, accessKey }
  for (const [name, value] of Object.entries(members)) {
    if (value != null) {
      entry[name] = value
    }
  }
  if (issuedBeforeMs != null) {
    // A fraction of a millisecond must not exempt a token.
    entry['issuedBefore'] = timeText(Math.ceil(issuedBeforeMs))
  }
  if (hasEnd && expiresAtMs != null) {
    entry['expiresAt'] = timeText(Math.ceil(expiresAtMs))
  }
  return entry
}

const timeText = (milliseconds: number): string => new Date(milliseconds).toISOString()
