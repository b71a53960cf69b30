/** Apache with mod_dav, as Debian packages it. */
export const APACHE = '/usr/sbin/apache2'

/** A complete configuration: port 9000, files in `files`. `more`: further directives. */
export function apacheConfig(more: string, directory: string): string {
  const modules = ['mpm_event', 'authz_core', 'dav', 'dav_fs', 'headers'].map(
    (name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`,
  )
  return `${modules.join('\n')}
    ServerName localhost\nServerRoot ${directory}\nPidFile pid\nErrorLog error\nUser www-data\nGroup www-data
    Listen 127.0.0.1:9000\nDocumentRoot ${directory}/files\nDavLockDB ${directory}/files/.lock\n${more}
    <Directory ${directory}/files>\nDav On\nRequire all granted\n</Directory>\n`
}
