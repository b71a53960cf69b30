/**
 * What tracing adds to a request that is not sampled, and to one that is, with a collector and with one that
 * hangs.
 */
import { join } from 'node:path'
import { freePort } from '../test/support/free-port.ts'
import type { Bench, Section } from './compare.ts'
import { type Lab, listening } from './lab.ts'

export async function tracing({ lab }: Bench): Promise<Section> {
  const collector = await startCollector(lab, 'take')
  const hanging = await startCollector(lab, 'hang')
  const found = (await lab.ask('tracing-calls.ts', { collector, hanging })) as Record<string, number>
  const rows = Object.entries(found).map(([name, microseconds]) => ({
    name,
    figures: { 'CPU µs': microseconds },
  }))
  return { title: 'What tracing adds to a request', rows }
}

async function startCollector(lab: Lab, how: 'take' | 'hang'): Promise<string> {
  const port = await freePort()
  lab.run(1, process.execPath, [join(import.meta.dirname, 'collector.js'), String(port), how])
  await listening(port)
  return `http://127.0.0.1:${port}/v1/traces`
}
