/**
 * The dashboard's queries, as Grafana would send them.
 *
 * @module
 */
import { monitoringFile } from './prometheus-rules.ts'

/** The part of Grafana's schema that we look at. */
export interface Dashboard {
  readonly uid?: string
  readonly title: string
  readonly schemaVersion: number
  readonly panels: readonly Panel[]
  readonly templating: { readonly list: readonly Variable[] }
  readonly annotations: {
    readonly list: readonly { readonly name: string; readonly expr: string; readonly datasource: Source }[]
  }
}

/** Where a panel gets its data. */
interface Source {
  readonly type: string
  readonly uid: string
}

/** A panel, or the head of a row. */
export interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description?: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly datasource?: Source
  readonly targets?: readonly { readonly expr: string; readonly datasource: Source }[]
}

/** A variable. */
export interface Variable {
  readonly name: string
  readonly type: string
  readonly definition?: string
  readonly datasource?: Source
  readonly allValue?: string
}

/** The dashboard. */
export function readDashboard(): Dashboard {
  return JSON.parse(monitoringFile('storage-auth-sidecar.dashboard.json'))
}

/** One query, and where it stands. */
export interface DashboardQuery {
  readonly title: string
  /** In Grafana's words, with variables. */
  readonly written: string
  /** In PromQL. */
  readonly expression: string
}

/** All queries: of the panels, of the variables, of the annotations. Variables have the value "All". */
export function queriesOf(
  { panels, templating, annotations }: Dashboard,
  rateInterval: string,
): DashboardQuery[] {
  const written = [
    ...panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, written: expr }))),
    ...annotations.list.map(({ name, expr }) => ({ title: name, written: expr })),
    ...templating.list.flatMap(({ name, definition }) => {
      const [, series, label] = /^label_values\((.*), (\w+)\)$/.exec(definition ?? '') ?? []
      return series === undefined ? [] : [{ title: `$${name}`, written: `count by (${label}) (${series})` }]
    }),
  ]
  return written.map((query) => ({
    ...query,
    expression: query.written
      .replaceAll('$__rate_interval', rateInterval)
      .replaceAll(/\$(?:namespace|job|pod)\b/g, '.*'),
  }))
}
