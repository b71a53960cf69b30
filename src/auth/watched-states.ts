/** What `suspicions.ts` watches of the sources, and which changes of them are suspect. */
import type { CredentialList } from '../credentials/credential-list.ts'
import type { RevocationList } from '../credentials/revocation-list.ts'
import type { AuthSources, SourceOptions } from './auth-sources.ts'
import type { WatchedState } from './suspicions.ts'

/** `revocations remove` takes one. */
const MAX_REMOVED_BY_COMMAND = 1

export function emptied(trusted: Pick<CredentialList, 'size'>, fresh: Pick<CredentialList, 'size'>) {
  const isEmptied = trusted.size > 0 && fresh.size === 0
  return isEmptied ? 'the credentials became empty: every login and token is refused' : undefined
}

/** @param endedBeforeMs - revocations of tokens that were issued before this time revoke ended tokens only */
export function lostRevocations(
  trusted: RevocationList,
  fresh: RevocationList,
  isOlder: boolean,
  endedBeforeMs: number,
): string | undefined {
  const lost = trusted.lostIn(fresh, endedBeforeMs)
  if (lost > 0 && isOlder) {
    return `an older file is back, without ${lost} revocations: their tokens are accepted again`
  }
  if (lost > MAX_REMOVED_BY_COMMAND) {
    return `${lost} revocations were lost at once: their tokens are accepted again`
  }
  return undefined
}

export function watchedStates(options: SourceOptions, sources: AuthSources): WatchedState[] {
  const { keys, credentials, revocations } = options.config
  const { keyFiles, credentialsFile, revocationsFile } = sources
  const states: WatchedState[] = []
  if (keyFiles !== undefined && keys.directory !== undefined) {
    states.push({ subject: 'keys', path: keys.directory, suspicion: () => undefined, trust() {} })
  }
  if (credentialsFile !== undefined && credentials.file !== undefined) {
    states.push(credentialsState(credentials.file, credentialsFile.current))
  }
  if (revocationsFile !== undefined) {
    states.push(revocationsState(options, revocations.file, revocationsFile.current))
  }
  return states
}

function credentialsState(path: string, current: () => CredentialList): WatchedState {
  let trusted = current()
  return {
    subject: 'credentials',
    path,
    suspicion: () => emptied(trusted, current()),
    trust() {
      trusted = current()
    },
  }
}

function revocationsState(
  { config, now }: SourceOptions,
  path: string,
  current: () => RevocationList,
): WatchedState {
  let trusted = current()
  return {
    subject: 'revocations',
    path,
    suspicion(isOlder) {
      const endedBeforeMs = now() - config.token.maxSignedSeconds * 1000
      return lostRevocations(trusted, current(), isOlder, endedBeforeMs)
    },
    trust() {
      trusted = current()
    },
  }
}
