/**
 * Opens many connections, sends one request on each and holds them: `node idle-client.ts JSON`, see `IdleLoad`. Prints
 * how many are open and touches the file `ready`; ends when that file is gone.
 *
 * @module
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { openConnection } from './connection.ts'

/** What is held. */
export interface IdleLoad {
  readonly port: number
  readonly connections: number
  /** File of the request to send. */
  readonly file: string
  /** File that tells that all are open. */
  readonly ready: string
}

const { port, connections, file, ready }: IdleLoad = JSON.parse(process.argv[2] ?? '')
const request = readFileSync(file, 'latin1')

let open = 0
const openOne = () =>
  new Promise<void>((resolve) => {
    openConnection(port).ask(request, (answer) => {
      if (answer?.status === 200) open++
      resolve()
    })
  })

// Fifty at a time: fewer than any backlog.
for (let opened = 0; opened < connections; opened += 50) {
  await Promise.all(Array.from({ length: Math.min(50, connections - opened) }, openOne))
}
writeFileSync(ready, String(open))
const watching = setInterval(() => {
  if (existsSync(ready)) return
  clearInterval(watching)
  console.log(JSON.stringify({ open }))
  process.exit()
}, 50)
