/**
 * Headers of HTTP Basic in the fuzz run: right, wrong, malformed, and of other schemes.
 * In: a random choice. Out: a line, and whose login it is. Shares no code with the program.
 */
import type { Random } from './random.ts'
import type { CampaignTrust, Identity } from './sidecar-process.ts'

export interface BasicHeader {
  readonly line: string
  /** Undefined: the request must be refused. */
  readonly identity: Identity | undefined
}

const base64 = (text: string) => Buffer.from(text, 'utf8').toString('base64')
const ofBytes = (...bytes: number[]) => `Basic ${Buffer.from(bytes).toString('base64')}`

type Names = Readonly<{ name: string; secret: string }>

/** Each is refused, whatever the login is. */
const FAULTS: readonly ((login: Names, random: Random) => string)[] = [
  ({ name, secret }, random) =>
    `Basic ${base64(`${name}:${random.pick([`${secret}x`, secret.slice(1), '', ` ${secret}`])}`)}`,
  ({ name, secret }, random) =>
    `Basic ${base64(`${random.pick([`${name}x`, `x${name}`, '', '~', `${name}~`, '\ufeff'])}:${secret}`)}`,
  ({ name, secret }) => `Basic ${base64(`${name}${secret}`)}`,
  ({ name, secret }, random) =>
    `Basic ${base64(`${name}:${secret}`)}${random.pick(['=', '====', '.', ',', ' x'])}`,
  ({ name, secret }) => `Basic ${base64(`${name}:${secret}::`).slice(0, -1)}`,
  ({ name, secret }, random) =>
    `${random.pick(['Basic\t', 'Basic', 'Basi ', 'Basics ', 'Basic Basic ', 'Digest ', 'Bearers '])}${base64(`${name}:${secret}`)}`,
  ({ name, secret }) => `Basic ${base64(`${name}:${secret}`)}, Basic ${base64(`${name}:${secret}`)}`,
  (_login, random) =>
    random.pick(['Basic', 'Basic ', 'Basic =', 'Basic YTo_Pz8_', 'Basic YTpi\xff', 'Basic "YTpi"']),
  (_login, random) =>
    random.pick(['Negotiate abc', 'AWS4-HMAC-SHA256 Credential=a/b, Signature=c', 'x', ':']),
  () => ofBytes(0x61, 0x3a, 0xff),
  () => ofBytes(0xed, 0xa0, 0x80, 0x3a, 0x62),
  () => ofBytes(0x61, 0x3a, 0x00),
  () => `Basic ${'A'.repeat(8192)}`,
]

export function randomBasic(random: Random, trust: CampaignTrust): BasicHeader {
  const { accountId, accessKey, secret } = random.pick(trust.logins)
  const name = random.pick([accessKey, `${accountId}~${accessKey}`])
  const header = random.pick(['Authorization', 'authorization', 'AUTHORIZATION'])
  if (random.chance(0.5)) {
    const fault = random.pick(FAULTS)({ name, secret }, random)
    return { line: `${header}: ${fault}`, identity: undefined }
  }
  const scheme = random.pick(['Basic', 'basic', 'BASIC', 'bAsIc'])
  const value = `${scheme}${random.pick([' ', ' ', '   '])}${base64(`${name}:${secret}`)}`
  return { line: `${header}: ${value}`, identity: basicIdentity({ accountId, accessKey }) }
}

/** The identity of a login, which has an id and an end of the sidecar's choice. */
export const basicIdentity = ({ accountId, accessKey }: Pick<Identity, 'accountId' | 'accessKey'>) => ({
  accountId,
  accessKey,
  tokenId: '',
  expiresAt: 0,
  isBasic: true,
})

const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/
/** Longer than `basic.cacheSeconds`. */
const MAX_SECONDS = 400

/** Whether id and end are those of a login that is remembered now. */
export function isLoginNow(tokenId: string, expires: string): boolean {
  const secondsLeft = Number(expires) - Date.now() / 1000
  return UUID.test(tokenId) && secondsLeft > -MAX_SECONDS && secondsLeft < MAX_SECONDS
}
