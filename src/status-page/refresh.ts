/**
 * Keeps the page fresh in the browser.
 *
 * Asks for `status.json` every five seconds while somebody can see the page, and changes only the parts that differ. When
 * the sidecar does not answer the page says so, and since when. Runs in the browser: see `figures.ts`.
 *
 * @module
 */
import type { Status } from '../ops/status/status.ts'
import { showAge, showClock } from './figures.ts'
import { renderParts } from './parts.ts'

/** What is used of an element. */
export interface PageElement {
  innerHTML: string
  readonly dataset: Record<string, string | undefined>
  readonly classList: { toggle(name: string, force: boolean): unknown }
}

/** What is used of a browser. */
export interface PageWindow {
  readonly document: {
    title: string
    readonly visibilityState: string
    readonly body: PageElement
    getElementById(id: string): PageElement | null
    addEventListener(event: 'visibilitychange', listener: () => void): void
  }
  readonly location: { reload(): void }
  fetch(url: string, options: object): Promise<{ readonly ok: boolean; json(): Promise<unknown> }>
  setTimeout(callback: () => void, milliseconds: number): unknown
  clearTimeout(timer: unknown): void
  readonly Date: { now(): number }
}

/** What the tab says. */
export function titleOf(status: Pick<Status, 'ready'> | undefined): string {
  const state = status === undefined ? '✕ Unreachable' : status.ready ? '✓ Ready' : '✕ Not ready'
  return `${state} · Storage auth sidecar`
}

/** Begins to refresh. */
export function keepFresh(window: PageWindow): void {
  const { document } = window
  const shown = new Map<string, string>()
  let timer: unknown
  let asking = false
  let lostAt: number | undefined

  const show = (id: string, html: string) => {
    const element = document.getElementById(id)
    if (element === null || shown.get(id) === html) return
    element.innerHTML = html
    shown.set(id, html)
  }
  const received = (status: Status) => {
    // Another version may say other things: let it bring its own page.
    if (status.version !== document.body.dataset['version']) return window.location.reload()
    lostAt = undefined
    for (const [id, html] of Object.entries(renderParts(status))) show(id, html)
    show('trouble', '')
    document.title = titleOf(status)
    document.body.classList.toggle('stale', false)
  }
  const missed = () => {
    const now = window.Date.now()
    lostAt ??= now
    const since = `${showClock(new Date(lostAt).toISOString())} (${showAge((now - lostAt) / 1000)})`
    show(
      'trouble',
      `<p><i aria-hidden="true">✕</i><b>Unreachable</b> since ${since}. What you see is from before.</p>`,
    )
    document.title = titleOf(undefined)
    document.body.classList.toggle('stale', true)
  }
  const refresh = async () => {
    window.clearTimeout(timer)
    if (asking || document.visibilityState === 'hidden') return
    asking = true
    try {
      const response = await window.fetch('status.json', {
        cache: 'no-store',
        signal: AbortSignal.timeout(4000),
      })
      if (!response.ok) throw new Error('no status')
      received((await response.json()) as Status)
    } catch {
      missed()
    }
    asking = false
    if (document.visibilityState !== 'hidden') timer = window.setTimeout(refresh, 5000)
  }
  document.addEventListener('visibilitychange', refresh)
  timer = window.setTimeout(refresh, 5000)
}
