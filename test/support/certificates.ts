/**
 * X.509 certificates for tests, created here: no file that expires, no program to install.
 */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { isIP } from 'node:net'

/** Contents of a certificate. */
interface CertificateOptions {
  readonly commonName: string
  /** Names and IPv4 addresses that it is valid for. */
  readonly names?: readonly string[]
  /** Who signs it; itself by default. */
  readonly issuer?: TestCertificate
  /** Whether it may sign others. */
  readonly authority?: boolean
  /** For a key of RSA instead of P-256. */
  readonly rsaBits?: number
  /** Epoch milliseconds; by default tomorrow. */
  readonly notAfter?: number
}

/** A certificate with its key. */
export interface TestCertificate {
  readonly cert: string
  readonly key: string
  readonly commonName: string
  readonly privateKey: KeyObject
}

const DAY_MS = 86_400_000

/** Makes a certificate (RFC 5280), signed with ECDSA. */
export function makeCertificate(options: CertificateOptions): TestCertificate {
  const { commonName, names = [], authority = false, notAfter = Date.now() + DAY_MS } = options
  const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const { privateKey, publicKey } =
    options.rsaBits === undefined ? p256 : generateKeyPairSync('rsa', { modulusLength: options.rsaBits })
  const signer = options.issuer ?? { commonName, privateKey: p256.privateKey }
  const ecdsaWithSha256 = sequence(objectId(1, 2, 840, 10045, 4, 3, 2))
  const serial = crypto.getRandomValues(Buffer.alloc(8))
  serial[0] = 1 // positive, and no leading zero
  const extensions = [
    sequence(
      objectId(2, 5, 29, 19),
      octets(sequence(...(authority ? [der(0x01, Buffer.from([0xff]))] : []))),
    ),
  ]
  if (names.length > 0) {
    const alternatives = names.map((name) =>
      isIP(name) === 0
        ? der(0x82, Buffer.from(name))
        : der(0x87, Buffer.from(name.split('.').map((part) => Number(part)))),
    )
    extensions.push(sequence(objectId(2, 5, 29, 17), octets(sequence(...alternatives))))
  }
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))), // version 3
    der(0x02, serial),
    ecdsaWithSha256,
    nameOf(signer.commonName),
    sequence(time(Math.min(Date.now(), notAfter) - DAY_MS), time(notAfter)),
    nameOf(commonName),
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(...extensions)),
  )
  const signature = sign('sha256', body, signer.privateKey)
  const whole = sequence(body, ecdsaWithSha256, der(0x03, Buffer.concat([Buffer.from([0]), signature])))
  const base64 = whole.toString('base64').replace(/.{64}(?!$)/g, '$&\n')
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    commonName,
    privateKey,
  }
}

/** One element of DER: its tag, its length, its content. */
function der(tag: number, content: Buffer): Buffer {
  return Buffer.concat([Buffer.from([tag, ...lengthBytes(content.length)]), content])
}

function lengthBytes(length: number): number[] {
  if (length < 0x80) {
    return [length]
  }
  return length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts))
}

function octets(content: Buffer): Buffer {
  return der(0x04, content)
}

function objectId(first: number, second: number, ...rest: readonly number[]): Buffer {
  const bytes = [40 * first + second]
  for (const number of rest) {
    bytes.push(...base128(number))
  }
  return der(0x06, Buffer.from(bytes))
}

/** The number in groups of 7 bits. All but the last one have the highest bit set. */
function base128(number: number): number[] {
  const groups = [number & 0x7f]
  let left = number >> 7
  while (left > 0) {
    groups.unshift((left & 0x7f) | 0x80)
    left >>= 7
  }
  return groups
}

function nameOf(commonName: string): Buffer {
  return sequence(der(0x31, sequence(objectId(2, 5, 4, 3), der(0x0c, Buffer.from(commonName)))))
}

function time(ms: number): Buffer {
  const text = new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, '') // 20300101000000Z
  return der(0x18, Buffer.from(text))
}
