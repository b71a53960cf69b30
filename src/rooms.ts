/**
 * The list of the rooms (`room.ts`). A room that is switched off is not imported.
 * A new room: its folder, an entry here in each list that it needs, its group of settings,
 * and its page of the docs.
 */
import { type AuthData, InvalidAuthData } from './auth/auth-data.ts'
import type { Logger } from './base/log.ts'
import type { Loaded } from './base/result.ts'
import type { Basic, BasicOptions } from './basic/basic.ts'
import type { Responder } from './client/responder.ts'
import type { Config, Problem } from './config/config.ts'
import type { EndToken } from './credentials/revocation-limit.ts'
import type { RecordEvent } from './endpoints/api-events.ts'
import type { LoginService } from './endpoints/login-service.ts'
import type { AdminRoom } from './ops/admin-room.ts'
import type { ReloadResult } from './reload/reloadable.ts'
import type { Room, RoomEndpoint } from './room.ts'
import type { TokenSigner } from './token/issue.ts'
import type { Verify } from './token/verify.ts'

export interface RoomOptions {
  readonly config: Config
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Whether the account has credentials. Undefined if there are none at all, or none are loaded yet. */
  readonly hasCredentials: (accountId: string) => boolean | undefined
  /** Called for each new version of a file of the room. `subject`: the room's `reloadSubject`. */
  readonly onReload: (subject: string, result: ReloadResult) => void
}

/** The rooms that are switched on. A room whose files have problems is left out. */
export interface OpenedRooms {
  readonly rooms: readonly Room[]
  readonly problems: readonly Problem[]
  readonly warnings: readonly string[]
}

/**
 * Opens the rooms of a process that serves requests. Never rejects. They poll only after `start` is called.
 */
export async function openRooms(options: RoomOptions): Promise<OpenedRooms> {
  const { config } = options
  const opened: Loaded<Room, Problem>[] = []
  if (config.fairUse.file !== '') {
    const { openFairUse } = await import('./fair-use/fair-use.ts')
    opened.push(await openFairUse(options))
  }
  if (config.tracing.endpoint !== '') {
    const { openTracing } = await import('./tracing/tracing.ts')
    opened.push(openTracing(options))
  }
  return {
    rooms: opened.flatMap((room) => (room.ok ? room.value : [])),
    problems: opened.flatMap((room) => (room.ok ? [] : room.problems)),
    warnings: opened.flatMap((room) => (room.ok ? room.warnings : [])),
  }
}

interface BasicParts extends Pick<BasicOptions, 'isRevoked' | 'signAssertions' | 'now'> {
  /** Both are absent without `credentials.file` and without a database. */
  readonly logins: LoginService | undefined
  readonly credentials: BasicOptions['credentials'] | undefined
}

/** HTTP Basic, a room with an interface of its own (`gate/basic-logins.ts`). Undefined if it is off. */
export async function openBasic(config: Config, parts: BasicParts): Promise<Basic | undefined> {
  const { basic, cache, limits, token } = config
  const { logins, credentials } = parts
  // A sidecar without logins does not start with Basic.
  if (!basic.enabled || logins === undefined || credentials === undefined) {
    return undefined
  }
  const { Basic } = await import('./basic/basic.ts')
  return new Basic({
    ...parts,
    logins,
    credentials,
    cacheSeconds: basic.cacheSeconds,
    maxLogins: cache.maxTokens,
    headerBytes: limits.headerBytes,
    issuer: token.issuer,
  })
}

/** What the endpoints of rooms use. They are opened once the auth data is loaded. */
export interface EndpointOptions {
  readonly config: Config
  readonly responder: Responder
  readonly signer: TokenSigner
  /** Absent without `credentials.file` and without a database. */
  readonly logins: LoginService | undefined
  readonly verify: Verify
  /** Absent without a database for revocations. */
  readonly endToken: EndToken | undefined
  readonly recordEvent: RecordEvent
  readonly publicJwks: () => object | undefined
}

/** Opens the endpoints of the rooms that are switched on. */
export async function openEndpoints(options: EndpointOptions): Promise<readonly RoomEndpoint[]> {
  const { config, logins, endToken } = options
  // A sidecar without logins does not start with OAuth.
  if (!config.oauth.enabled || logins === undefined) {
    return []
  }
  const { openOAuth } = await import('./oauth/oauth.ts')
  return openOAuth({ ...options, logins }, endToken)
}

export interface AdminRoomOptions {
  readonly config: Config
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Of the process itself. Undefined in the primary of several workers, unless `needsAuthData`. */
  readonly authData: AuthData | undefined
}

/** Whether a room on the admin listener reads keys, credentials or revocations. */
export const needsAuthData = ({ feed }: Config): boolean => feed.enabled

/**
 * Opens the rooms of the process that has the admin listener. They work only after `start` is called.
 * @throws InvalidAuthData with the problems of their files
 */
export async function openAdminRooms(options: AdminRoomOptions): Promise<readonly AdminRoom[]> {
  const { config, log, authData } = options
  const rooms: AdminRoom[] = []
  if (config.fairUse.file !== '') {
    const { FairUseStatus } = await import('./fair-use/status.ts')
    rooms.push(new FairUseStatus(config.fairUse.enforcement))
  }
  if (config.tracing.endpoint !== '') {
    const { tracingStatus } = await import('./tracing/status.ts')
    rooms.push(tracingStatus)
  }
  if (config.feed.enabled && authData?.store !== undefined) {
    const { openFeed } = await import('./feed/feed.ts')
    const opened = await openFeed({ ...options, authData, store: authData.store })
    if (!opened.ok) {
      throw new InvalidAuthData(opened.problems)
    }
    for (const warning of opened.warnings) {
      log.warn(warning)
    }
    rooms.push(opened.value)
  }
  return rooms
}
