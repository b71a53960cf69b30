/**
 * Who may follow the feed: the holder of the token in `feed.tokenFile`, and the subjects of trusted issuers
 * (`feed.subjects`), whose tokens are verified as those of clients are.
 * In: the header lines of a request. Out: whether they prove a follower.
 */
import { hash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { AuthData } from '../auth/auth-data.ts'
import { failed } from '../base/result.ts'
import type { Config } from '../config/config.ts'
import { bearerToken } from '../gate/gate.ts'
import { HeaderLines } from '../http/headers.ts'
import { TokenCache } from '../token/cache.ts'
import { createIssuers } from '../token/issuers.ts'
import { createVerifier } from '../token/verify.ts'

export type FollowerAuthData = Pick<AuthData, 'keySets' | 'revocations' | 'subscribe'>

export interface ProofOptions {
  readonly config: Pick<Config, 'feed' | 'token' | 'links' | 'trustedIssuers' | 'cache'>
  readonly authData: FollowerAuthData
  /** The content of `feed.tokenFile`. Undefined without this setting. */
  readonly sharedToken: (() => string) | undefined
  readonly now: () => number
}

export class Proofs {
  readonly #sharedToken: (() => string) | undefined
  /** Kept, because each follower is checked twice for each change. */
  #digested = { token: '', digest: digest('') }
  readonly #tokens: TokenCache | undefined

  constructor(options: ProofOptions) {
    this.#sharedToken = options.sharedToken
    this.#tokens = options.config.feed.subjects.length > 0 ? tokensOfSubjects(options) : undefined
  }

  /** Returns a promise only if a token must be verified. */
  isProven(token: string): boolean | Promise<boolean> {
    if (this.#isShared(token)) {
      return true
    }
    const verdict = this.#tokens?.check(token)
    return verdict instanceof Promise ? verdict.then(({ ok }) => ok) : verdict?.ok === true
  }

  /** Takes the same time for all tokens of a length. */
  #isShared(token: string): boolean {
    const shared = this.#sharedToken?.()
    if (shared === undefined) {
      return false
    }
    if (shared !== this.#digested.token) {
      this.#digested = { token: shared, digest: digest(shared) }
    }
    return timingSafeEqual(digest(token), this.#digested.digest)
  }
}

/**
 * Returns undefined for a request without exactly one bearer token.
 * Not by `headersDistinct`, which would stay in memory for as long as a follower waits.
 */
export function presentedToken({ rawHeaders }: IncomingMessage): string | undefined {
  const [authorization, ...more] = new HeaderLines(rawHeaders).values('authorization')
  return more.length > 0 ? undefined : bearerToken(authorization)
}

const digest = (text: string) => hash('sha256', text, 'buffer')

/**
 * Accepts tokens of trusted issuers for the subjects of `feed.subjects` only.
 * A subject has the account that it has as a client.
 */
function tokensOfSubjects({ config, authData, now }: ProofOptions): TokenCache {
  const { feed, token, links, cache } = config
  const trustedIssuers = config.trustedIssuers.map((issuer) => {
    const accountOf = (subject: string) =>
      issuer.accounts?.[subject] ?? `${issuer.accountPrefix ?? ''}${subject}`
    const accounts = Object.fromEntries(feed.subjects.map((subject) => [subject, accountOf(subject)]))
    return { ...issuer, accounts, accountPrefix: undefined }
  })
  // The sidecar's own tokens prove accounts, and no follower.
  const noOwnKey = () => failed('unknown_key')
  const issuers = createIssuers({ token, links, trustedIssuers }, noOwnKey, authData.keySets)
  const { isRevoked } = authData.revocations
  const { clockToleranceSeconds } = token
  const verify = createVerifier({ issuers, isRevoked, clockToleranceSeconds, now })
  const { maxAgeSeconds } = cache
  const tokens = new TokenCache({ verify, isRevoked, maxTokens: feed.maxFollowers, maxAgeSeconds, now })
  authData.subscribe((_subject, issuer) => {
    if (issuer !== undefined) {
      tokens.removeTokensOf(issuer)
    }
  })
  return tokens
}
