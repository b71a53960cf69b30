/**
 * The credentials and revocations of the sidecar's own store, files or database, as one state with a version:
 * what a room serves to other sidecars. Sidecars with the same store have the same versions.
 */
import { hash } from 'node:crypto'
import type { CredentialList, CredentialName } from '../credentials/credential-list.ts'
import type { Revocation, RevocationList } from '../credentials/revocation-list.ts'
import type { AuthSources } from './auth-sources.ts'

export interface StoreState {
  /** Only letters, digits, `.`, `_` and `-`: the revision of the database, or digests of the files. */
  readonly version: string
  readonly credentials: CredentialList
  readonly revocations: readonly RevocationList[]
  /**
   * What was added, changed or removed since the former state.
   * Undefined if it is not known: then the lists must be compared.
   */
  readonly touched: TouchedRows | undefined
}

export interface TouchedRows {
  readonly credentials: readonly CredentialName[] | undefined
  readonly revocations: readonly Revocation[] | undefined
}

export class AuthStore {
  readonly #sources: AuthSources
  readonly #subscribers: ((state: StoreState) => void)[] = []

  constructor(sources: AuthSources) {
    this.#sources = sources
    sources.credentialsFile?.subscribe(() => this.#emit(undefined))
    sources.revocationsFile?.subscribe(() => this.#emit(undefined))
    sources.database?.subscribeSnapshots(({ changedCredentials: credentials, revocationChanges: changes }) =>
      this.#emit({ credentials, revocations: changes && [...changes.removed, ...changes.added] }),
    )
  }

  /** Undefined until the database has been read. */
  current(): StoreState | undefined {
    return this.#stateAfter(undefined)
  }

  /** Called with each new state, in their order. The lists of the former one may have changed by then. */
  subscribe(onState: (state: StoreState) => void): void {
    this.#subscribers.push(onState)
  }

  /** Looks for a newer state now. Resolves once it is current. Never rejects. */
  async refresh(): Promise<void> {
    const { credentialsFile, revocationsFile, database } = this.#sources
    await Promise.all([credentialsFile?.refresh(), revocationsFile?.refresh(), database?.refresh()])
  }

  /** How long ago the state was that of the store: 0 while the store can be read. */
  ageSeconds(): number {
    return this.#sources.database?.downSeconds() ?? 0
  }

  #emit(touched: TouchedRows | undefined): void {
    const state = this.#stateAfter(touched)
    if (state === undefined) {
      return
    }
    for (const onState of this.#subscribers) {
      onState(state)
    }
  }

  #stateAfter(touched: TouchedRows | undefined): StoreState | undefined {
    const { credentialsFile, revocationsFile, database } = this.#sources
    const snapshot = database?.snapshot()
    const credentials = snapshot?.credentials ?? credentialsFile?.current()
    if (credentials === undefined) {
      return undefined
    }
    const lists = [revocationsFile?.current(), snapshot?.revocations].filter((list) => list !== undefined)
    const files = [credentials.version, ...lists.map(({ version }) => version)].filter((text) => text !== '')
    const ofDatabase = snapshot === undefined ? [] : [versionText(snapshot.version)]
    const version = [...ofDatabase, ...files].join('.')
    return { version, credentials, revocations: lists, touched }
  }
}

/** Keeps what orders the revisions for a reader, and makes the rest short. */
function versionText(version: string): string {
  const [number] = version.split(' ', 1)
  return `${number}-${hash('sha256', version, 'base64url').slice(0, 22)}`
}
