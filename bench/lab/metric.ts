/**
 * One number from a sidecar's metrics.
 *
 * @module
 */
import { get } from 'node:http'

/** The sum over all label sets of a metric. */
export async function metric(adminPort: number, name: string): Promise<number> {
  const text = await new Promise<string>((resolve, reject) => {
    get({ host: '127.0.0.1', port: adminPort, path: '/metrics', agent: false }, (res) => {
      let body = ''
      res.setEncoding('utf8').on('data', (part: string) => {
        body += part
      })
      res.on('end', () => resolve(body))
    }).on('error', reject)
  })
  const lines = text.split('\n').filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
  if (lines.length === 0) throw new Error(`no metric ${name}`)
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)
}
