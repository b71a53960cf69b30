/**
 * Says what is wrong with a claim of a refused token: its value, what is accepted, and the setting
 * that says so. Only `token inspect` shows this. The claims are not verified.
 */

/** The settings that decide which claims are accepted. */
export interface AcceptedTokens {
  readonly token: {
    readonly issuer: string
    readonly audience: string
    readonly maxLifetimeSeconds: number
    readonly clockToleranceSeconds: number
  }
  readonly links: { readonly enabled: boolean; readonly maxLifetimeSeconds: number }
  readonly trustedIssuers: readonly {
    readonly issuer: string
    readonly audience: string
    readonly maxLifetimeSeconds: number
    readonly accessKeyClaim: string
    readonly requiredClaims: Readonly<Record<string, string | number | boolean>>
  }[]
}

export interface UnverifiedToken {
  readonly header: Readonly<Record<string, unknown>>
  readonly claims: Readonly<Record<string, unknown>>
  readonly rules: AcceptedTokens
  readonly nowMs: number
}

/** A longer value says no more. */
const MAX_VALUE_LENGTH = 200

export function explainUnknownKey({ header, claims, rules }: UnverifiedToken): string {
  const text = `The sidecar has no key for the kid ${valueText(header['kid'])}, so the content is unproven.`
  const isKnown = issuersOf(rules).some(({ name }) => name === claims['iss'])
  return isKnown ? text : `${text} ${explainIssuer(claims['iss'], rules)}`
}

/** @param part - the claim, the header parameter `typ`, or `payload` */
export function explainClaim(part: string, token: UnverifiedToken): string {
  const { header, claims, rules } = token
  switch (part) {
    case 'payload':
      return 'The payload is no JSON object with the claims of a token.'
    case 'iss':
      return explainIssuer(claims['iss'], rules)
    case 'typ':
      return explainType(header['typ'], rules)
    case 'iat':
    case 'nbf':
      return explainStart(part, token)
    case 'exp':
      return explainEnd(token)
    default:
      return explainOther(part, token)
  }
}

function explainIssuer(iss: unknown, rules: AcceptedTokens): string {
  const accepted = issuersOf(rules).map(({ name, setting }) => `${valueText(name)} (${setting}.issuer)`)
  return `Its iss is ${valueText(iss)}. Accepted: ${accepted.join(', ')}.`
}

function explainType(typ: unknown, { links }: AcceptedTokens): string {
  const text = `Its typ is ${valueText(typ)}. Accepted: "at+jwt"; of trustedIssuers also "JWT", or none.`
  return links.enabled ? text : `${text} Links need links.enabled.`
}

function explainStart(part: 'iat' | 'nbf', { claims, rules, nowMs }: UnverifiedToken): string {
  const value = claims[part]
  const aheadSeconds = Number(value) - nowMs / 1000
  const isNumber = typeof value === 'number' && Number.isFinite(value)
  if (!isNumber || aheadSeconds <= 0) {
    return `Its ${part} is ${valueText(value)}. Needed: a number of seconds.`
  }
  const { clockToleranceSeconds } = rules.token
  const limit = `Limit: ${clockToleranceSeconds} s (token.clockToleranceSeconds)`
  return `Its ${part} is ${value}, ${Math.ceil(aheadSeconds)} s ahead of the clock here. ${limit}.`
}

function explainEnd({ claims, rules }: UnverifiedToken): string {
  const { iss, iat, exp } = claims
  const lifetimeSeconds = Number(exp) - Number(iat)
  const isNumber = typeof exp === 'number' && Number.isFinite(lifetimeSeconds)
  if (!isNumber || lifetimeSeconds <= 0) {
    return `Its exp is ${valueText(exp)}. Needed: a number of seconds, later than iat.`
  }
  const issuer = issuersOf(rules).find(({ name }) => name === iss)
  const setting = issuer?.setting ?? 'token'
  const limit = issuer?.maxLifetimeSeconds ?? rules.token.maxLifetimeSeconds
  return `It lives ${lifetimeSeconds} s (exp - iat). Limit: ${limit} s (${setting}.maxLifetimeSeconds).`
}

function explainOther(part: string, { claims, rules }: UnverifiedToken): string {
  const found = `Its ${part} is ${valueText(claims[part])}.`
  const issuer = issuersOf(rules).find(({ name }) => name === claims['iss'])
  if (part === 'aud' && issuer !== undefined) {
    return `${found} Needed: ${valueText(issuer.audience)} (${issuer.setting}.audience).`
  }
  const required = issuer?.requiredClaims[part]
  if (required !== undefined) {
    return `${found} Needed: ${valueText(required)} (${issuer?.setting}.requiredClaims).`
  }
  if (part === issuer?.accessKeyClaim) {
    return `${found} It maps to no account (${issuer.setting}.accounts or accountPrefix).`
  }
  return `${found} It is missing, or is no claim of an access token for this service.`
}

interface AcceptedIssuer {
  readonly setting: string
  readonly name: string
  readonly audience: string
  readonly maxLifetimeSeconds: number
  readonly accessKeyClaim?: string
  readonly requiredClaims: Readonly<Record<string, unknown>>
}

function issuersOf({ token, trustedIssuers }: AcceptedTokens): readonly AcceptedIssuer[] {
  const { issuer: name, audience, maxLifetimeSeconds } = token
  const own = { setting: 'token', name, audience, maxLifetimeSeconds, requiredClaims: {} }
  const trusted = trustedIssuers.map((entry, index) => ({
    ...entry,
    setting: `trustedIssuers[${index}]`,
    name: entry.issuer,
  }))
  return [own, ...trusted]
}

function valueText(value: unknown): string {
  const text = JSON.stringify(value)
  if (text === undefined) {
    return 'missing'
  }
  return text.length > MAX_VALUE_LENGTH ? `${text.slice(0, MAX_VALUE_LENGTH)}…` : text
}
