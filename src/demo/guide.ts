/**
 * The lines that the demo prints: what to paste into another terminal, and what comes of it.
 *
 * In: where the demo listens, its login and its sample file. Out: text; every line is a comment or one complete
 * command for a POSIX shell with curl, and they work in order, pasted one by one or all at once. Comments hold
 * no character that a shell gives a meaning: an interactive zsh takes them for commands.
 *
 * @module
 */
import type { AddressInfo } from 'node:net'
import type { Login } from '../credentials/store.ts'

/** What the lines are about. */
export interface GuideOptions {
  readonly data: AddressInfo
  readonly admin: AddressInfo
  readonly login: Login
  /** Absolute path of a file to upload. */
  readonly sampleFile: string
}

/** Writes the lines. */
export function guide({ data, admin, login, sampleFile }: GuideOptions): string {
  const sidecar = url(data)
  const json = "-H 'Content-Type: application/json'"
  const token = '-H "Authorization: Bearer $TOKEN"'
  const onlyToken = String.raw`sed 's/.*"token":"\([^"]*\)".*/\1/'`
  return `
# The storage API is ready behind the sidecar. Paste these lines into another terminal.
# Ctrl-C in this one stops both.

# 1. Get a token, valid for 24 hours
TOKEN=$(curl -sS ${json} -d ${quoted(JSON.stringify(login))} ${sidecar}/v2/auth/token | ${onlyToken})

# 2. Put a file
curl -sS ${token} -H 'Content-Type: text/plain' -T ${quoted(sampleFile)} ${sidecar}/greetings/hello.txt

# 3. Get it back
curl -sS ${token} ${sidecar}/greetings/hello.txt

# 4. List what is there
curl -sS ${token} '${sidecar}/?prefix=/greetings/'

# 5. Ask how many seconds the token has left
curl -sS -w '\\n' ${token} ${sidecar}/v2/auth/token

# 6. Be refused without a token
curl -sS -i -w '\\n' ${sidecar}/greetings/hello.txt

# 7. See what the sidecar counted
curl -sS ${url(admin)}/metrics | grep '^auth_sidecar_token'
`
}

function url({ address, port }: AddressInfo): string {
  return `http://${address}:${port}`
}

/** One word for a POSIX shell, whatever is in it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}
