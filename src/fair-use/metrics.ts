/** The metrics of fair use, as `METRICS` of `ops/metrics.ts` declares those of the core. */

export const FAIR_USE_METRICS = {
  fair_use_limited_total: {
    type: 'counter',
    help: 'Requests over a limit of their account: refused, or with fairUse.enforcement: report let pass.',
    labels: ['limit'],
  },
  fair_use_paced_seconds_total: {
    type: 'counter',
    help: 'Seconds that transfers waited for the byte limits of their accounts.',
    labels: ['direction'],
  },
} as const
