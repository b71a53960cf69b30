/**
 * How the status page looks: light or dark as the system is, in one column on a phone.
 *
 * Text has a contrast of at least 4.5 to 1 on what it stands on; states differ in shape and words, lines in their
 * dashes, so that nothing depends on colour.
 *
 * @module
 */

/** The style sheet. */
export const STYLE = `
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --panel: #ffffff; --ink: #1b222b; --quiet: #55606e; --rule: #dfe3e8;
  --one: #1d5fb8; --two: #6b4fb3; --three: #4d6a7d; --good: #17683a; --warn: #8a4b00; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1317; --panel: #171c22; --ink: #e4e9ef; --quiet: #9ba7b5; --rule: #2b333d;
    --one: #7fb2ff; --two: #bda6ff; --three: #a3bccd; --good: #73d39d; --warn: #f2bd63; --bad: #ff8f85;
  }
}
* { box-sizing: border-box; margin: 0; padding: 0; }
body {
  background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
header, main, footer { max-width: 1280px; margin: 0 auto; padding: 0 20px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 16px; padding-top: 18px; }
h1 { font-size: 17px; font-weight: 650; letter-spacing: -.01em; }
h2 { font-size: 13px; font-weight: 650; margin-bottom: 8px; }
#about { display: flex; flex-wrap: wrap; gap: 0 14px; color: var(--quiet); }
#updated { margin-left: auto; color: var(--quiet); }
a { color: var(--one); }
:focus-visible { outline: 2px solid var(--one); outline-offset: 2px; border-radius: 2px; }
.quiet { color: var(--quiet); }
b { font-weight: 650; }
i { font-style: normal; }
code { font: 12.5px/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
#trouble p {
  margin-bottom: 10px; padding: 8px 14px; border: 1px solid var(--bad); border-left-width: 5px;
  border-radius: 6px; background: var(--panel);
}
#trouble b, #trouble i { color: var(--bad); margin-right: 4px; }
main { display: grid; grid-template-columns: repeat(12, minmax(0, 1fr)); gap: 12px; padding-top: 12px; }
section { grid-column: span 12; background: var(--panel); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 16px; }
.half { grid-column: span 6; }
.wide { grid-column: span 7; }
.slim { grid-column: span 5; }
.stale section { border-style: dashed; }
#verdict { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 28px; }
.verdict { font-size: 18px; font-weight: 650; }
.checks { display: flex; flex-wrap: wrap; gap: 2px 20px; list-style: none; }
.mark, .unit { white-space: nowrap; }
.verdict .mark { white-space: normal; }
.mark i {
  display: inline-block; width: 1.35em; height: 1.35em; line-height: 1.35em; margin-right: .45em;
  border-radius: 50%; text-align: center; font-size: .8em; font-weight: 700; color: var(--panel); background: var(--quiet);
}
.mark.good i { background: var(--good); }
.mark.warn i { background: var(--warn); border-radius: 3px; }
.mark.bad i { background: var(--bad); border-radius: 3px; }
#figures { display: grid; grid-template-columns: repeat(8, minmax(0, 1fr)); }
#figures div { padding: 0 12px; border-left: 1px solid var(--rule); }
#figures div:first-child { padding-left: 0; border-left: 0; }
#figures dt { color: var(--quiet); font-size: 12.5px; }
#figures dd b { display: block; font-size: 21px; font-weight: 600; line-height: 1.25; letter-spacing: -.01em; }
#figures small { font-size: 13px; font-weight: 400; color: var(--quiet); }
#figures dd span { font-size: 12.5px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; list-style: none; margin-bottom: 8px; }
.legend b { margin-left: 3px; }
.swatch { width: 24px; height: 8px; margin-right: 6px; vertical-align: 1px; }
.plot { display: grid; grid-template-columns: 56px minmax(0, 1fr); gap: 4px 8px; color: var(--quiet); font-size: 12px; }
.scale { display: flex; flex-direction: column; justify-content: space-between; text-align: right; margin: -8px 0; }
.hours { grid-column: 2; display: flex; justify-content: space-between; }
.chart { display: block; width: 100%; height: 132px; }
.spark { display: block; width: 100%; height: 22px; }
.rule { stroke: var(--rule); stroke-width: 1; vector-effect: non-scaling-stroke; fill: none; }
.line { fill: none; stroke: currentColor; stroke-width: 1.75; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; }
.area { fill: currentColor; opacity: .1; }
.one { color: var(--one); }
.two { color: var(--two); stroke-dasharray: 6 4; }
.three { color: var(--three); stroke-dasharray: 1 4; }
.ill { color: var(--bad); }
.none { color: var(--quiet); }
.line.ill { stroke-dasharray: 3 3; }
.spark .line { stroke-dasharray: none; stroke-width: 1.25; }
table { width: 100%; border-collapse: collapse; }
caption { text-align: left; font-size: 13px; font-weight: 650; margin-bottom: 6px; }
caption .quiet { font-weight: 400; }
th, td { padding: 5px 0 5px 16px; text-align: right; vertical-align: top; border-top: 1px solid var(--rule); font-weight: 400; }
thead th { border-top: 0; padding-top: 0; color: var(--quiet); font-size: 12.5px; }
th:first-child { padding-left: 0; text-align: left; }
td { white-space: nowrap; }
td .quiet, th .quiet { font-size: 12.5px; white-space: normal; overflow-wrap: anywhere; }
#rejections td, #rejections th { padding-top: 3px; padding-bottom: 3px; }
#rejections td:nth-child(2) { width: 48%; vertical-align: middle; }
#rejections th:nth-child(2), #upstreams :is(td, th):nth-child(2), #keys :is(td, th):is(:nth-child(2), :nth-child(3)), #trust table :is(td, th):nth-child(2) { text-align: left; }
.facts { display: grid; gap: 4px; }
.facts div { display: grid; grid-template-columns: 96px minmax(0, 1fr); }
.facts dt { color: var(--quiet); }
table + .facts { margin-top: 8px; border-top: 1px solid var(--rule); padding-top: 8px; }
.facts + table { margin-top: 14px; }
.empty { color: var(--quiet); padding: 12px 0; }
footer { padding-top: 14px; padding-bottom: 28px; color: var(--quiet); display: flex; flex-wrap: wrap; gap: 2px 18px; }
@media (max-width: 1000px) {
  .half, .wide, .slim { grid-column: span 12; }
  #figures { grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 14px 0; }
  #figures div:nth-child(4n + 1) { padding-left: 0; border-left: 0; }
}
@media (max-width: 560px) {
  header, main, footer { padding-left: 10px; padding-right: 10px; }
  main { gap: 8px; padding-top: 8px; }
  section { padding: 10px 12px; }
  #updated { margin-left: 0; }
  #figures { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px 0; }
  #figures div:nth-child(odd) { padding-left: 0; border-left: 0; }
  th, td { padding-left: 8px; }
  #rejections td:nth-child(2) { width: 38%; }
  .plot { grid-template-columns: 46px minmax(0, 1fr); }
  .chart { height: 104px; }
  #upstreams thead, #keys thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  #upstreams caption, #keys caption { display: block; }
  #upstreams :is(table, tbody, tr, th, td), #keys :is(table, tbody, tr, th, td) { display: block; }
  #upstreams tr, #keys tr { display: grid; gap: 4px 12px; padding: 8px 0; border-top: 1px solid var(--rule); }
  #upstreams tr { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  #keys tr { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  #upstreams tr :is(th, td), #keys tr :is(th, td) { padding: 0; border: 0; text-align: left; }
  #upstreams tr th { grid-column: span 3; }
  #upstreams td:nth-child(2), #keys tr th { grid-column: span 2; }
  #upstreams td::before, #keys td::before { content: attr(data-title); display: block; color: var(--quiet); font-size: 12px; }
}
@media (prefers-reduced-motion: no-preference) {
  .stale main { transition: opacity .3s; }
}
`
