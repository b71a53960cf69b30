/**
 * Writes metrics in the text format of Prometheus, version 0.0.4, as prom-client does, but in several turns
 * of the event loop: hundreds of upstreams have tens of thousands of series, and requests must not wait.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Registry } from 'prom-client'
import type { MetricFamily, MetricValue, StoredFamily } from './metrics.ts'

export const EXPOSITION_TYPE = Registry.PROMETHEUS_CONTENT_TYPE

/** They take 1 to 5 ms. */
const SERIES_A_TURN = 1000

/** Calls `visit` for each series, some of them in each turn of the event loop. */
export async function eachSeries(
  families: Iterable<MetricFamily>,
  visit: (value: MetricValue, family: MetricFamily) => void,
): Promise<void> {
  let visited = 0
  for (const family of families) {
    for (const value of family.values) {
      visit(value, family)
      visited++
      if (visited % SERIES_A_TURN === 0) {
        await nextTurn()
      }
    }
  }
}

/** Returns the metrics with all their series. */
export async function storedFamilies(families: readonly MetricFamily[]): Promise<StoredFamily[]> {
  const values = new Map(families.map((family): [MetricFamily, MetricValue[]] => [family, []]))
  await eachSeries(families, (value, family) => values.get(family)?.push(value))
  return families.map((family) => ({ ...family, values: values.get(family) ?? [] }))
}

/** Returns the text. Of families with the same name, the first counts. */
export async function exposition(families: readonly MetricFamily[]): Promise<Buffer> {
  const byName = new Map(families.toReversed().map((family) => [family.name, family]))
  const shown = families.filter(
    (family) => byName.get(family.name) === family && family.aggregator !== 'omit',
  )
  const texts = new Map(shown.map((family) => [family, [headOf(family)]]))
  await eachSeries(shown, (value, family) => texts.get(family)?.push(lineOf(value, family.name)))
  const parts: Buffer[] = []
  for (const lines of texts.values()) {
    const blankLine = parts.length === 0 ? '' : '\n'
    parts.push(Buffer.from(blankLine + lines.join('')))
  }
  return Buffer.concat(parts)
}

const headOf = ({ name, help, type }: MetricFamily) =>
  `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}\n# TYPE ${name} ${type}\n`

function lineOf({ labels, value, metricName }: MetricValue, name: string): string {
  let inBraces = ''
  for (const label in labels) {
    const comma = inBraces === '' ? '' : ','
    inBraces += `${comma}${label}="${escaped(String(labels[label]))}"`
  }
  const series = inBraces === '' ? '' : `{${inBraces}}`
  return `${metricName ?? name}${series} ${textOf(value)}\n`
}

const SPECIAL = /[\\"\n]/

function escaped(text: string): string {
  if (!SPECIAL.test(text)) {
    return text
  }
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')
}

function textOf(value: number): string {
  if (Number.isFinite(value)) {
    return String(value)
  }
  if (Number.isNaN(value)) {
    return 'Nan'
  }
  return value > 0 ? '+Inf' : '-Inf'
}
