/**
 * How many bytes are gone over while something is done: an account of work that no clock has a part in.
 *
 * @module
 */

/**
 * Bytes that Node's buffers look through, copy, decode or take anew while `work` is done. It must not wait for anything.
 */
export function countedWork(work: () => void): number {
  let bytes = 0
  const { indexOf, lastIndexOf, copy, toString: decode } = Buffer.prototype
  const { from, concat, allocUnsafe, allocUnsafeSlow } = Buffer
  Object.assign(Buffer.prototype, {
    indexOf(this: Buffer, ...args: Parameters<typeof indexOf>) {
      const found = indexOf.apply(this, args)
      bytes += (found < 0 ? this.length : found) - Number(args[1] ?? 0) + 1
      return found
    },
    lastIndexOf(this: Buffer, ...args: Parameters<typeof lastIndexOf>) {
      const found = lastIndexOf.apply(this, args)
      bytes += this.length - Math.max(found, 0)
      return found
    },
    copy(this: Buffer, ...args: Parameters<typeof copy>) {
      const copied = copy.apply(this, args)
      bytes += copied
      return copied
    },
    toString(this: Buffer, ...args: Parameters<typeof decode>) {
      const text = decode.apply(this, args)
      bytes += text.length
      return text
    },
  })
  const counting = (make: (...args: never[]) => Buffer) =>
    function (this: unknown, ...args: never[]): Buffer {
      const made = make.apply(Buffer, args)
      bytes += made.length
      return made
    }
  Object.assign(Buffer, {
    from: counting(from as (...args: never[]) => Buffer),
    concat: counting(concat),
    allocUnsafe: counting(allocUnsafe),
    allocUnsafeSlow: counting(allocUnsafeSlow),
  })
  try {
    work()
  } finally {
    Object.assign(Buffer.prototype, { indexOf, lastIndexOf, copy, toString: decode })
    Object.assign(Buffer, { from, concat, allocUnsafe, allocUnsafeSlow })
  }
  return bytes
}
