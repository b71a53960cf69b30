/** What the status page says of tracing: that the collector does not take all spans. */
import type { AdminRoom } from '../ops/admin-room.ts'
import type { StatusProblem } from '../ops/problems.ts'
import type { Windows } from '../ops/samples.ts'

export const tracingStatus: AdminRoom = {
  *problems({ tenMinutes }: Windows): Generator<StatusProblem> {
    const dropped = tenMinutes.ofRoom('spans_dropped_total', '').get('') ?? 0
    if (dropped > 0) {
      const minutes = Math.ceil(tenMinutes.seconds / 60)
      const text = `Traces have gaps: ${dropped} spans dropped in ${minutes} min, see the log`
      yield { severity: 'warning', text }
    }
  },
}
