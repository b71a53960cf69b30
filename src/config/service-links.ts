/**
 * Tells variables that Kubernetes made from ones that people wrote.
 *
 * For every Service of a namespace, Kubernetes puts variables named after the Service into each pod. One
 * called `sidecar-admin` brings `SIDECAR_ADMIN_PORT=tcp://10.0.0.7:8081`: neither a setting nor a typing
 * mistake, and a pod must not stop starting because somebody created a Service.
 *
 * @module
 */

/** Whether a variable has the shape of a Kubernetes service link ("docker link" variables). */
export function isServiceLink(name: string, value: string): boolean {
  return (
    /_SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)$/.test(name) ||
    /_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?$/.test(name) ||
    (name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value))
  )
}
