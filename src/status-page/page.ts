/**
 * The status page: one document that asks nothing of any other place.
 *
 * In: a status. Out: the document with its header fields. It can be read without scripts; with them it refreshes itself,
 * by the very functions that made its first sight, sent along as text. The policy (CSP level 3) lets this one script and
 * this one style sheet pass, by their hashes, and connections to where the page came from.
 *
 * @module
 */
import { createHash } from 'node:crypto'
import type { Status } from '../ops/status/status.ts'
import * as chart from './chart.ts'
import * as figures from './figures.ts'
import * as parts from './parts.ts'
import * as refresh from './refresh.ts'
import { STYLE } from './style.ts'

/** Everything the browser runs: functions that use nothing but their arguments and each other. */
export const SCRIPT = `'use strict'
${[figures, chart, parts, refresh].flatMap((module) => Object.values(module).map(String)).join('\n')}
keepFresh(globalThis)
`

const ICON =
  'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 16 16%22%3E%3Cpath fill=%22%231d5fb8%22 d=%22M8 0l7 3v5c0 4-3 7-7 8-4-1-7-4-7-8V3z%22/%3E%3C/svg%3E'

const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`

/** Header fields of the page. */
export const HEADERS: Readonly<Record<string, string>> = {
  'Content-Security-Policy': [
    "default-src 'none'",
    `script-src ${hashOf(SCRIPT)}`,
    `style-src ${hashOf(STYLE)}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
}

/** The document. */
export function renderPage(status: Status): string {
  const html = parts.renderParts(status)
  const panel = (id: string, kind: string, title: string) =>
    `<section class="${kind}" aria-labelledby="${id}-title"><h2 id="${id}-title">${title}</h2><div id="${id}">${html[id]}</div></section>`
  const tables = (id: string, kind: string, label: string) =>
    `<section class="${kind}" id="${id}" aria-label="${label}">${html[id]}</section>`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${figures.escapeText(refresh.titleOf(status))}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="${ICON}">
<style>${STYLE}</style>
</head>
<body data-version="${figures.escapeText(status.version)}">
<header>
<h1>Storage auth sidecar</h1>
<div id="about">${html['about']}</div>
<div id="updated">${html['updated']}</div>
</header>
<main>
<section aria-label="State"><div id="trouble" role="alert"></div><div id="verdict" role="status">${html['verdict']}</div></section>
<section aria-label="Key figures"><dl id="figures">${html['figures']}</dl></section>
${panel('requests', 'half', 'Requests per second')}
${panel('latency', 'half', 'Latency')}
${tables('rejections', 'half', 'Refused tokens')}
${tables('routes', 'half', 'Routes and logins')}
${tables('upstreams', '', 'Upstreams')}
${tables('keys', 'wide', 'Keys')}
${tables('trust', 'slim', 'Credentials, revocations and reloads')}
</main>
<footer><noscript>Without scripts this page does not refresh itself.</noscript><span>Refreshes every 5 s while you see it</span><a href="status.json">status.json</a><a href="metrics">metrics</a><a href="readyz">readyz</a></footer>
<script type="module">${SCRIPT}</script>
</body>
</html>
`
}
