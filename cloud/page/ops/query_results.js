/* Results of a query: the newest revision of each window and group, a chart, and what came too late. */

import { html, useRef } from "../vendor/htm/standalone.module.js";
import { cell, clock, counted, moment, unitSaid, whole, words } from "../live/format.js";
import { columnsOf } from "../live/cards.js";
import { Chart } from "../live/detail.js";
import { Series } from "../live/model.js";
import { bound } from "../tally.js";
import { enc } from "./api.js";
import { useRecent } from "./live_data.js";
import { programsOf } from "./programs.js";
import { At, Rows, Ways } from "./ui.js";

const KEPT = 500; /* windows and groups, the newest word first */
const SHOWN = 60;
const REVISIONS_KEPT = 20; /* of one window and group */
const LATE_SHOWN = 20;

/** The newest revision of each window and group, with those before it. Without `keys` each text is one. */
export class Revisions {
  constructor(keys) {
    this.keys = keys;
    this.rows = new Map(); /* window and group as text -> revisions, the newest last */
  }

  /** Groups by these columns from now on; what is here gets new ids, so that no row is shown twice. */
  groupBy(keys) {
    if (JSON.stringify(keys) === JSON.stringify(this.keys)) return;
    this.keys = keys;
    const all = [...this.rows.values()].flat();
    this.rows.clear();
    for (const row of all) this.take(row);
  }

  take(row) {
    const keys = this.keys?.length ? this.keys : Object.keys(row).filter((name) => name !== "query" && typeof row[name] === "string");
    const id = JSON.stringify([row.window_start, row.window_end, ...keys.map((name) => row[name])]);
    const known = this.rows.get(id) ?? [];
    if (known.some((one) => one.revision === row.revision)) return;
    this.rows.delete(id); /* so that the order is that of the newest word */
    this.rows.set(id, [...known, row].sort((a, b) => a.revision - b.revision).slice(-REVISIONS_KEPT));
    bound(this.rows, KEPT);
  }

  /** {id, newest, before} of those that are not withdrawn, the latest window first. */
  get shown() {
    const found = [...this.rows].map(([id, all]) => ({ id, newest: all.at(-1), before: all.slice(0, -1).reverse() }));
    return found.filter(({ newest }) => !newest.withdrawn).sort((a, b) => (b.newest.window_end ?? 0) - (a.newest.window_end ?? 0)).slice(0, SHOWN);
  }
}

export function Results({ query }) {
  const { name, watermark } = query;
  const kept = useRef(new Revisions(query.keys));
  const { fault } = useRecent({ key: query.topic, names: [name], take: (row) => kept.current.take(row) });
  kept.current.groupBy(query.keys);
  const shown = kept.current.shown;
  const columns = columnsOf(shown.map(({ newest }) => newest));
  const unitOf = (one) => unitSaid(query.units[one] ?? "");
  const isNumber = (one) => shown.some(({ newest }) => typeof newest[one] === "number");
  const numbers = columns.filter((one) => isNumber(one) && !query.keys.includes(one));
  const steps = numbers.length ? stepsOf(shown, numbers[0]) : [];
  const isOpen = ({ window_end: end, final }) => !final && (watermark === null || (end ?? 0) > watermark);
  const corrected = shown.filter(({ newest, before }) => !isOpen(newest) && before.some((one) => one.final)).map(({ newest }) => newest.window_end);
  const rows = shown.map(({ id, newest, before }) => ({ id, newest, before, isOpen: isOpen(newest) }));
  return html`${fault && html`<p class="card wrong" role="alert">${fault}; what you see is of before.</p>`}
    ${steps.length > 1 && html`<section class="card"><h2>${words(numbers[0])} <small>${[unitOf(numbers[0]), "mean of its windows, with least and most"].filter(Boolean).join(", ")}</small></h2><${Chart} steps=${steps} name=${numbers[0]} corrected=${[...new Set(corrected)]} />${corrected.length > 0 && html`<p class="quiet">▲ ${counted(new Set(corrected).size, "windows")} said something else when they were first final.</p>`}</section>`}
    <section class="card"><h2>Newest results <small>${watermark ? html`final up to <${At} at=${watermark} />` : "nothing is final yet"}</small></h2>${rows.length === 0
      ? html`<p class="quiet">No result in the last 15 minutes. A window is told when its first readings are computed.</p>`
      : html`<div class="console results"><${Rows} caption="Newest results" rows=${rows} columns=${[
          ["window_end", "window to", { view: ({ newest }) => html`<${At} at=${newest.window_end} />` }],
          ...columns.map((one) => [one, words(one), { unit: unitOf(one), number: isNumber(one), view: ({ newest }) => cell(newest[one], one) }]),
          ["state", "state", { view: (row) => html`<${Standing} row=${row} columns=${numbers} unitOf=${unitOf} />` }],
        ]} /></div>`}
      <p class="actions"><a class="button" href=${`#/boards?${new URLSearchParams({ source: name, ...(numbers.length && { field: numbers[0] }) })}`}>Put on a board</a><a class="button" href=${`#/ask?sql=${enc(`SELECT * FROM "${name}" ORDER BY window_end DESC LIMIT 100`)}`}>Ask in SQL</a>
        <a class="button" href=${`#/queries/new?text=${enc(`-- name: ${name}_more\n-- description: Of the results of ${name}\nSELECT * FROM ${name}\n`)}`}>Use these results in a query</a></p>
      <${Ways} of=${[["in a terminal", `edgewake tail ${name}`], ["as curl", `curl -N '${query.events_urls[0] ?? `http://ACCESS-SERVER${query.events_path}`}?from=-15m'`], ...programsOf(query, { name, back: "-15m" })]} /></section>`;
}

/** Open, final or corrected; what was said before on a press. */
function Standing({ row: { isOpen, before }, columns, unitOf }) {
  const said = isOpen ? "open" : before.some((one) => one.final) ? "corrected" : "final";
  if (before.length === 0) return html`<span class="standing" data-state=${said}>${said}</span>`;
  return html`<details class="standing" data-state=${said}><summary>${said} <small>${before.length + 1} revisions</small></summary>
    <ul>${before.map((one) => html`<li><small>${one.revision}</small> ${columns.map((name) => [words(name), cell(one[name], name), unitOf(name)].filter(Boolean).join(" ")).join(", ")}</li>`)}</ul></details>`;
}

function stepsOf(shown, field) {
  const points = new Series();
  for (const { newest } of shown.toReversed()) if (typeof newest[field] === "number" && newest.window_end) points.take(newest[field], newest.window_end);
  return points.steps;
}

/** What came too late for windows of this query in the last hour: it is counted and told with examples. */
export function Late({ query }) {
  const rows = useRef([]);
  const { fault } = useRecent({ key: `late ${query.topic}`, names: ["late_readings"], where: `late_query = '${query.name}'`, minutes: 60, take: (event) => {
    rows.current = [{ id: rows.current.length ? rows.current[0].id + 1 : 0, ...event }, ...rows.current].slice(0, LATE_SHOWN);
  } });
  return html`<section class="card"><h2>Late readings <small>${whole(query.late)} since it was registered</small></h2>
    ${fault && html`<p class="fault" role="alert">${fault}; what you see is of before.</p>`}
    ${rows.current.length === 0 ? html`<p class="quiet">None in the last hour.</p>` : html`<div class="results"><${Rows} caption="Late readings" rows=${rows.current} columns=${[
      ["window_ends", "too late for the window to", { view: (row) => (row.window_ends ? html`<time title=${moment(row.window_ends)}>${clock(row.window_ends)}</time>` : "several") }],
      ["readings", "readings", { number: true }],
      ["late_stream", "of", { view: (row) => html`<a href=${`#/streams/${enc(row.late_stream)}`}>${row.late_stream}</a>` }],
      ["examples", "for example", { wraps: true, view: ({ examples }) => html`<code class="examples">${examples}</code>` }],
    ]} /></div>`}
    <p class="quiet">They are in their stream all the same. <b>Repair</b>, below, computes their windows once more.</p></section>`;
}
