/** The metric of tracing, as `METRICS` of `ops/metrics.ts` declares those of the core. */

export const TRACING_METRICS = {
  spans_dropped_total: {
    type: 'counter',
    help: 'Spans that the collector did not take: it was slow, away or refused them.',
    labels: [],
  },
} as const
