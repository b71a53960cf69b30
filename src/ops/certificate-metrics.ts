/**
 * Tells when the certificates that we show expire.
 *
 * @module
 */
import type { Registry } from 'prom-client'
import { registerSeries } from './tally.ts'

/** What the series are made of. */
export interface CertificateMetricsOptions {
  readonly registry: Registry
  /** The certificates in force that we show. */
  readonly expiries: () => readonly { readonly certificate: string; readonly expiresAt: number }[]
}

/** Registers the series. */
export function createCertificateMetrics({ registry, expiries }: CertificateMetricsOptions): void {
  registerSeries(
    registry,
    {
      name: 'auth_sidecar_certificate_not_after_timestamp_seconds',
      help: 'When the certificate in force expires, in epoch seconds.',
      type: 'gauge',
      aggregator: 'min',
    },
    () =>
      expiries().map(({ certificate, expiresAt }) => ({ labels: { certificate }, value: expiresAt / 1000 })),
  )
}
