/** Reads a bearer token from a file: that of a service account is replaced while the sidecar runs. */
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { readRegularFile } from './files.ts'

const MAX_BYTES = 65_536

/** Never rejects. Problems begin with the path. */
export async function readBearerToken(path: string): Promise<Loaded<string>> {
  const read = await readRegularFile(path, MAX_BYTES)
  if (!read.ok) {
    return read
  }
  const value = read.value.bytes.toString('latin1').trim()
  if (!/^[!-~]+$/.test(value)) {
    return notLoaded([`${path}: holds no token`])
  }
  return loaded(value)
}
