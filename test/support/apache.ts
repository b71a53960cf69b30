/** Apache with mod_dav, as Debian packages it. */
import { spawn } from 'node:child_process'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { eventually } from './eventually.ts'
import { freePort } from './free-port.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export const APACHE = '/usr/sbin/apache2'

/** A complete configuration: files in `files` of the directory. `more`: further directives. */
export function apacheConfig(more: string, directory: string, port = 9000): string {
  const modules = ['mpm_event', 'authz_core', 'dav', 'dav_fs', 'headers'].map(
    (name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`,
  )
  return `${modules.join('\n')}
    ServerName localhost\nServerRoot ${directory}\nPidFile pid\nErrorLog error\nUser www-data\nGroup www-data
    Listen 127.0.0.1:${port}\nDocumentRoot ${directory}/files\nDavLockDB ${directory}/files/.lock\n${more}
    <Directory ${directory}/files>\nDav On\nRequire all granted\n</Directory>\n`
}

/** Starts Apache with these files, each with the content `content`. `files`: its document root. */
export async function startApache(t: Test, paths: readonly string[] = []) {
  const directory = await temporaryDirectory(t)
  const files = join(directory, 'files')
  // Apache's workers are another user, who must be able to change everything.
  const makeFolder = (path: string) => {
    mkdirSync(path, { recursive: true })
    chmodSync(path, 0o777)
  }
  chmodSync(directory, 0o777)
  makeFolder(files)
  for (const path of paths) {
    const file = join(files, path)
    makeFolder(dirname(file))
    writeFileSync(file, 'content')
    chmodSync(file, 0o666)
  }
  const port = await freePort()
  const config = join(directory, 'config')
  writeFileSync(config, apacheConfig('', directory, port))
  const server = spawn(APACHE, ['-DFOREGROUND', '-f', config], { stdio: 'ignore' })
  t.teardown(() => server.kill())
  const url = `http://127.0.0.1:${port}`
  await eventually(() => fetch(url).catch(() => undefined), 'Apache')
  return { url, files }
}
