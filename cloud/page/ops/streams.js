/* Streams: the list, and one of them with its fields and how to read it. */

import { html, useRef, useState } from "../vendor/htm/standalone.module.js";
import { Table } from "../live/cards.js";
import { clock, rate, whole } from "../live/format.js";
import { enc, get } from "./api.js";
import { Erase } from "./erasures.js";
import { Look } from "./gaps.js";
import { useRecent } from "./live_data.js";
import { Breaks, Facts, Loaded, Rows, useLoaded } from "./ui.js";

const recordsOf = ({ partitions }) => partitions.reduce((sum, p) => sum + p.next - p.first, 0);

export function Streams() {
  const loaded = useLoaded(() => get("/v1/streams?limit=500"), "streams");
  return html`<${Loaded} loaded=${loaded} empty="No stream yet. The first reading makes one.">${({ items }) => html`<${Rows} caption="Streams" rows=${items} sorts columns=${[
    ["name", "stream", { view: ({ name }) => html`<a href=${`#/streams/${enc(name)}`}>${name}</a>` }],
    ["records_per_s", "records", { number: true, view: (row) => (row.records_per_s ? rate(row.records_per_s) : "–") }],
    ["kept", "records kept", { number: true, by: recordsOf, view: (row) => whole(recordsOf(row)) }],
    ["fields", "fields", { by: () => null, view: ({ fields }) => Object.keys(fields).join(", ") }],
    ["description"],
  ]} />`}<//>`;
}

export function Stream({ name }) {
  const loaded = useLoaded(() => get(`/v1/streams/${enc(name)}`), `stream ${name}`);
  return html`<nav class="crumbs"><a href="#/streams">Streams</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(stream) => html`
      <${Facts} of=${[
        ["records", stream.records_per_s ? rate(stream.records_per_s) : "none now"],
        ["topic", html`<${Breaks} text=${stream.topic} />`],
        ["partitions", stream.partitions.length],
        ["description", stream.description || null],
        ["devices", html`<a href=${`#/devices?stream=${enc(name)}`}>that send it</a>`],
        ["read by", html`<a href=${`#/clients?stream=${enc(name)}`}>clients</a>`],
        ["be told", html`<a href=${`#/alerts?new=1&stream=${enc(name)}`}>alert on this</a>`],
        ["ask", html`<a href=${`#/ask?sql=${enc(`SELECT * FROM ${name} ORDER BY t DESC LIMIT 20`)}`}>its newest readings by SQL</a>`],
      ]} />
      <${Rows} caption="Fields" rows=${Object.entries(stream.fields).map(([field, info]) => ({ name: field, ...info }))} columns=${[
        ["name", "field", { view: (row) => html`<a href=${`#/summaries/${enc(`${name}.${row.name}`)}`} title="what it held">${row.name}</a>` }], ["type"], ["unit", "unit", { view: ({ unit }) => unit || "–" }],
      ]} />
      <${Look} streams=${[name]} />
      <${Console} key=${name} stream=${stream} />
      <${Erase} name=${name} withQueries what="All its readings, what was computed and summed up of them, and its files in the lake. What devices send later begins a new stream."
        ask=${(isWith) => `/v1/streams/${enc(name)}${isWith ? "?queries=true" : ""}`} />`}<//>`;
}

const ROWS_KEPT = 200; /* newest readings of the console */

/** What comes, as it comes: some fields, of some devices, until it is paused. */
function Console({ stream }) {
  const [isPaused, setPaused] = useState(false);
  const [find, setFind] = useState("");
  const [columns, setColumns] = useState("");
  const rows = useRef([]);
  const { fault } = useRecent({ key: stream.name, names: [stream.name], minutes: 5, isPaused, take: (event) => {
    rows.current.unshift(event);
    rows.current.length = Math.min(rows.current.length, ROWS_KEPT);
  } });
  const known = ["t", "device", ...Object.keys(stream.fields)];
  const wanted = columns.split(/[\s,]+/).filter((one) => known.includes(one));
  const shown = rows.current.filter((row) => find === "" || JSON.stringify(row).includes(find));
  const where = find && /^[A-Za-z0-9._-]+$/.test(find) ? `&where=${enc(`device LIKE '%${find}%'`)}` : "";
  const select = wanted.length ? `&select=${enc(wanted.join(", "))}` : "";
  return html`<section class="card"><h2>As it comes <small>${isPaused ? "paused" : `the newest ${ROWS_KEPT}`}</small></h2>
      <p class="actions bare"><label>Only with <input placeholder="car-07" spellcheck="false" value=${find} onInput=${({ target }) => setFind(target.value)} /></label>
        <label>fields <input placeholder="all" spellcheck="false" list="fields" value=${columns} onInput=${({ target }) => setColumns(target.value)} /></label>
        <datalist id="fields">${known.map((one) => html`<option value=${one}></option>`)}</datalist>
        <button type="button" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button></p>
      ${fault && html`<p class="fault" role="alert">${fault}; what you see is of before.</p>`}
      <div class="console"><${Table} rows=${shown.map((row) => ({ ...row, t: clock(row.t ?? row.received_at) }))} columns=${wanted.length ? wanted : known} caption="Newest readings" /></div>
      ${shown.length === 0 && html`<p class="quiet">${rows.current.length ? "None of the newest is like that." : "Nothing came in the last 5 minutes."}</p>`}
      <dl class="ways"><dt>in a terminal</dt><dd><code>edgewake tail ${stream.name}</code></dd>
        <dt>by HTTP</dt><dd><code>curl -N 'http://ACCESS-SERVER${stream.events_path}?from=-5m${where}${select}'</code></dd>
        <dt>as a query</dt><dd><a href=${`#/queries/new?text=${enc(queryOf(stream))}`}>count it each ten seconds</a></dd></dl></section>`;
}

const queryOf = ({ name }) => `-- name: ${name}_counts\n-- description: How often each device sends ${name}\nSELECT device, count(*) AS readings\nFROM ${name}\nGROUP BY window(event_time, '10 seconds'), device\n`;
