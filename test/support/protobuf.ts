/** Reads protobuf messages without their schema: a field's number, and its values in order. */

type Field = bigint | Buffer
export type Message = ReadonlyMap<number, readonly Field[]>

/** Wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes. */
export function readMessage(bytes: Buffer): Message {
  const fields = new Map<number, Field[]>()
  let at = 0
  const varint = (): bigint => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes.readUInt8(at++)
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) {
        return value
      }
    }
  }
  const take = (length: number): Buffer => {
    const taken = bytes.subarray(at, at + length)
    if (taken.length < length) {
      throw new Error('a message was cut')
    }
    at += length
    return taken
  }
  const value = (wireType: number): Field => {
    switch (wireType) {
      case 0:
        return varint()
      case 1:
        return take(8).readBigUInt64LE()
      case 2:
        return take(Number(varint()))
      case 5:
        return BigInt(take(4).readUInt32LE())
      default:
        throw new Error(`no wire type: ${wireType}`)
    }
  }
  while (at < bytes.length) {
    const tag = Number(varint())
    const number = tag >> 3
    fields.set(number, [...(fields.get(number) ?? []), value(tag & 7)])
  }
  return fields
}

export const messagesIn = (message: Message, field: number): Message[] =>
  (message.get(field) ?? []).map((bytes) => readMessage(bytesOf(bytes)))

export const textIn = (message: Message, field: number): string => bytesIn(message, field).toString()

export const bytesIn = (message: Message, field: number): Buffer => bytesOf(message.get(field)?.[0])

export function numberIn(message: Message, field: number): bigint {
  const value = message.get(field)?.[0] ?? 0n
  if (typeof value !== 'bigint') {
    throw new Error(`field ${field} is no number`)
  }
  return value
}

function bytesOf(value: Field = Buffer.alloc(0)): Buffer {
  if (typeof value === 'bigint') {
    throw new Error('a field is a number')
  }
  return value
}
