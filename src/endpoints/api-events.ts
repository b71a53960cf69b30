/** What requests of the Account API and logins did, for the audit log and the metrics. */
import type { LoginFailure } from '../base/errors.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { LoginMethod } from './login-service.ts'

/** The caller is the `identityForLog` of the request context. */
export type ApiEvent =
  | { readonly event: 'login'; readonly method: LoginMethod; readonly usedPreviousSecret: boolean }
  | { readonly event: 'login_failed'; readonly method: LoginMethod; readonly reason: LoginFailure }
  | { readonly event: 'logout' }
  | {
      readonly event: 'link_created'
      readonly linkId: string
      readonly method: string
      readonly target: string
    }
  | { readonly event: 'link_ended'; readonly linkId: string }

export type RecordEvent = (req: SidecarRequest, event: ApiEvent) => void
