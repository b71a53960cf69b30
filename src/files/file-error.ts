/**
 * Says in plain words why a file operation failed, without the path and the call that Node's messages carry.
 *
 * @module
 */

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or directory',
  ENOTDIR: 'there is no such file or directory',
  EISDIR: 'it is a directory',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
}

/** The reason in words, or the system's code where we have no words for it. */
export function fileErrorReason(error: unknown): string {
  const code = fileErrorCode(error)
  return reasons[code] ?? code
}

/** The system's code, such as `ENOSPC`. */
export function fileErrorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault'
}
