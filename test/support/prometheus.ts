/** Reads Prometheus' text format by the letter, and complains of what `promtool check metrics` would. */

/** One sample. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** One metric with all its samples. */
export interface Family {
  readonly type: string
  readonly help: string
  readonly samples: Sample[]
}

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/

/** Parses an exposition; throws at the first thing that is not right. */
export function parseMetrics(text: string): Map<string, Family> {
  const families = new Map<string, Family>()
  const seen = new Set<string>()
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  let help: { name: string; text: string } | undefined
  for (const line of text.split('\n').slice(0, -1)) {
    if (line === '') continue
    const comment = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line)
    const [, kind, name = '', rest = ''] = comment ?? []
    if (kind === 'HELP') {
      if (families.has(name)) throw new Error(`${name} stands here twice`)
      help = { name, text: rest }
    } else if (kind === 'TYPE') {
      if (help?.name !== name) throw new Error(`${name} has no help`)
      checkName(name, rest)
      families.set(name, { type: rest, help: help.text, samples: [] })
    } else {
      const sample = parseSample(line)
      const key = `${sample.name} ${JSON.stringify(Object.entries(sample.labels).sort())}`
      if (seen.has(key)) throw new Error(`${key} stands here twice`)
      seen.add(key)
      const family =
        families.get(sample.name) ?? families.get(sample.name.replace(/_(?:bucket|sum|count)$/, ''))
      if (family === undefined) throw new Error(`${sample.name} has no type`)
      family.samples.push(sample)
    }
  }
  for (const [name, family] of families) if (family.type === 'histogram') checkHistogram(name, family)
  return families
}

function parseSample(line: string): Sample {
  const [, name = '', inner = '', number = ''] = LINE.exec(line) ?? []
  if (name === '') throw new Error(`no sample: ${line}`)
  const labels: Record<string, string> = {}
  for (let rest = inner; rest !== ''; ) {
    const found = LABEL.exec(rest)
    if (found === null) throw new Error(`no label: ${rest}`)
    const [all, label = '', value = ''] = found
    if (label in labels) throw new Error(`${label} stands twice in ${line}`)
    labels[label] = value
    rest = rest.slice(all.length)
  }
  const value = number === '+Inf' ? Number.POSITIVE_INFINITY : Number(number)
  if (Number.isNaN(value) && number !== 'NaN' && number !== 'Nan') throw new Error(`no number: ${line}`)
  return { name, labels, value }
}

function checkName(name: string, type: string): void {
  if (!['counter', 'gauge', 'histogram', 'summary'].includes(type))
    throw new Error(`${name}: what is ${type}?`)
  if (!name.startsWith('auth_sidecar_')) return // prom-client's own
  if (type === 'counter' && !name.endsWith('_total')) throw new Error(`${name}: a counter ends with _total`)
  if (type !== 'counter' && name.endsWith('_total')) throw new Error(`${name}: only counters end with _total`)
}

/** Buckets ascend to +Inf, are cumulative, and agree with the count; for each set of the other labels. */
function checkHistogram(name: string, { samples }: Family): void {
  const groups = new Map<string, { buckets: [number, number][]; count?: number; sum?: number }>()
  for (const { name: part, labels, value } of samples) {
    const { le, ...others } = labels
    const key = JSON.stringify(others)
    const group = groups.get(key) ?? { buckets: [] }
    groups.set(key, group)
    if (part === `${name}_bucket`) {
      group.buckets.push([le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le), value])
    } else if (part === `${name}_count`) group.count = value
    else if (part === `${name}_sum`) group.sum = value
    else throw new Error(`${part} is no part of a histogram`)
  }
  for (const [key, { buckets, count, sum }] of groups) {
    const ascends = buckets.every(([le, value], at) => {
      const [before = Number.NEGATIVE_INFINITY, valueBefore = 0] = buckets[at - 1] ?? []
      return le > before && value >= valueBefore
    })
    const [last, all] = buckets.at(-1) ?? []
    if (!ascends || last !== Number.POSITIVE_INFINITY || all !== count || sum === undefined) {
      throw new Error(`${name}${key} is no histogram`)
    }
  }
}
