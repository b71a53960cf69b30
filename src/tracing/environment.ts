/**
 * The variables of OpenTelemetry that the packages do not read by themselves. Those that they read:
 * `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` (`resourceOf`), `OTEL_EXPORTER_OTLP_HEADERS` and
 * others of the exporter. An empty variable counts as unset.
 */
import type { Config } from '../config/config.ts'
import { DEFAULT_SAMPLE_RATIO } from '../config/schema.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export const isDisabled = (env: Environment): boolean => env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true'

/** The setting counts, then `OTEL_TRACES_SAMPLER_ARG`, then the default. */
export function sampleRatioOf({ sampleRatio }: Pick<Config['tracing'], 'sampleRatio'>, env: Environment) {
  if (sampleRatio !== undefined) {
    return { ratio: sampleRatio, warnings: [] }
  }
  const given = env['OTEL_TRACES_SAMPLER_ARG']?.trim() ?? ''
  if (given === '') {
    return { ratio: DEFAULT_SAMPLE_RATIO, warnings: [] }
  }
  const ratio = Number(given)
  if (ratio >= 0 && ratio <= 1) {
    return { ratio, warnings: [] }
  }
  const warning = `OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1, so ${DEFAULT_SAMPLE_RATIO} counts`
  return { ratio: DEFAULT_SAMPLE_RATIO, warnings: [warning] }
}
