/** The lists whose members are maps: upstreams, trusted issuers and public routes. */
import { z } from 'zod'
import {
  API_TOKEN_SECONDS,
  checkedText,
  exactPath,
  filePath,
  forwardedMethod,
  httpUrl,
  must,
  nameSchema,
  oneOf,
  pathPrefix,
  plainText,
  RUN_ALWAYS,
  strictMap,
  tokenSeconds,
  upstreamUrl,
} from '../base/schemas.ts'
import { isHttps } from '../http/hosts.ts'
import { PUBLIC_ALGORITHMS } from '../keys/key-ring.ts'
import { scopeProblem } from '../token/scopes.ts'

const UPSTREAM = 'must be a map such as { prefix: /, url: http://127.0.0.1:9000 }'

const upstream = strictMap(UPSTREAM, {
  prefix: pathPrefix.describe('Paths that it serves; the longest prefix wins, on segment boundaries.'),
  url: upstreamUrl.describe('Where it is: http://host:port, https://host:port or unix:/absolute/path.'),
  caFile: filePath.optional().describe('PEM file of the CAs that sign its certificate.'),
  certFile: filePath.optional().describe('PEM file of the client certificate that it receives.'),
  keyFile: filePath.optional().describe('PEM file of the private key of certFile.'),
  assertionAudience: plainText.optional().describe('Claim aud of its assertions, if not that of all.'),
}).superRefine((upstream, context) => {
  if (!(upstream instanceof Object)) return
  const { url, certFile, keyFile } = upstream
  const report = (file: string, message: string) =>
    context.addIssue({ code: 'custom', path: [file], message })
  for (const file of ['caFile', 'certFile', 'keyFile'] as const)
    if (upstream[file] !== undefined && !isHttps(String(url)))
      report(file, 'needs a url that begins with https:')
  if (certFile !== undefined && keyFile === undefined) report('certFile', 'needs keyFile beside it')
  if (keyFile !== undefined && certFile === undefined) report('keyFile', 'needs certFile beside it')
}, RUN_ALWAYS)

export const upstreams = z.array(upstream, `must be a list; each member ${UPSTREAM}`)

const TRUSTED_ISSUER =
  'must be a map such as { issuer: https://idp.example, jwksUrl: https://idp.example/keys, audience: storage-api, accountPrefix: "idp:" }'
const ACCOUNTS = 'must be a map from values of accessKeyClaim to account identifiers'
const REQUIRED_CLAIMS = 'must be a map from claims to a text, a number, true or false'

const claimValue = z.union([z.string(), z.number(), z.boolean()], REQUIRED_CLAIMS)

/** Refuses `__proto__`, which zod leaves out of a record silently: a required claim would not be checked. */
const mapWithoutProto = z
  .any()
  .refine((map) => !(map instanceof Object && Object.hasOwn(map, '__proto__')), 'must not contain __proto__')
  .meta({ type: 'object' })

const trustedIssuer = strictMap(TRUSTED_ISSUER, {
  issuer: plainText.describe('Claim iss of its tokens.'),
  jwksUrl: httpUrl.describe('URL of its JWK Set.'),
  caFile: filePath.optional().describe('PEM file of the CAs that sign the certificate of that URL.'),
  bearerTokenFile: filePath.optional().describe('File with the token that is sent to that URL.'),
  audience: plainText.describe('Must be in the claim aud.'),
  algorithms: z
    .array(oneOf(PUBLIC_ALGORITHMS), 'must be a list of algorithms')
    .min(1, 'must have at least one algorithm')
    .default(['RS256', 'ES256'])
    .describe('Accepted algorithms.'),
  accessKeyClaim: plainText.default('sub').describe('The claim that becomes the access key.'),
  accounts: mapWithoutProto
    .pipe(z.record(nameSchema, nameSchema, must(ACCOUNTS)))
    .optional()
    .describe('The account for each value of that claim.'),
  accountPrefix: plainText.optional().describe('Instead of accounts: prefix and value are the account.'),
  scope: checkedText(scopeProblem).optional().describe('Restricts every token of this issuer.'),
  requiredClaims: mapWithoutProto
    .pipe(z.record(z.string(), claimValue, must(REQUIRED_CLAIMS)))
    .default({})
    .describe('Claims with the value that each must equal or, in an array, contain.'),
  maxLifetimeSeconds: tokenSeconds.default(API_TOKEN_SECONDS).describe('Longest accepted exp - iat.'),
}).superRefine((entry, context) => {
  if (!(entry instanceof Object)) return
  const report = (name: string, message: string) =>
    context.addIssue({ code: 'custom', path: [name], message })
  const { accounts, accountPrefix, caFile, jwksUrl } = entry
  if ((accounts === undefined) === (accountPrefix === undefined))
    report('accounts', 'must be set, or accountPrefix, and not both')
  if (caFile !== undefined && !isHttps(String(jwksUrl)))
    report('caFile', 'needs a jwksUrl that begins with https:')
}, RUN_ALWAYS)

export const trustedIssuers = z.array(trustedIssuer, `must be a list; each member ${TRUSTED_ISSUER}`)

const ROUTE = 'must be a map such as { method: GET, path: /healthz }'

const publicRoute = strictMap(ROUTE, {
  method: forwardedMethod.describe('Exact method.'),
  path: exactPath.describe('Exact path, without query.'),
})

export const publicRoutes = z.array(publicRoute, `must be a list; each member ${ROUTE}`)
