/* Streams: the list, and one of them with its fields and how to read it. */

import { html } from "../vendor/htm/standalone.module.js";
import { rate } from "../live/format.js";
import { enc, get } from "./api.js";
import { Erase } from "./erasures.js";
import { Facts, Loaded, Rows, useLoaded } from "./ui.js";

export function Streams() {
  const loaded = useLoaded(() => get("/v1/streams?limit=500"), "streams");
  return html`<${Loaded} loaded=${loaded} empty="No stream yet. The first reading makes one.">${({ items }) => html`<${Rows} caption="Streams" rows=${items} columns=${[
    ["name", "stream", { view: ({ name }) => html`<a href=${`#/streams/${enc(name)}`}>${name}</a>` }],
    ["records_per_s", "records", { number: true, view: (row) => (row.records_per_s ? rate(row.records_per_s) : "–") }],
    ["kept", "records kept", { number: true, view: ({ partitions }) => partitions.reduce((sum, p) => sum + p.next - p.first, 0).toLocaleString("en") }],
    ["fields", "fields", { view: ({ fields }) => Object.keys(fields).join(", ") }],
    ["description"],
  ]} />`}<//>`;
}

export function Stream({ name }) {
  const loaded = useLoaded(() => get(`/v1/streams/${enc(name)}`), `stream ${name}`);
  return html`<nav class="crumbs"><a href="#/streams">Streams</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(stream) => html`
      <${Facts} of=${[
        ["records", stream.records_per_s ? rate(stream.records_per_s) : "none now"],
        ["topic", stream.topic],
        ["partitions", stream.partitions.length],
        ["description", stream.description || null],
        ["be told", html`<a href=${`#/alerts?new=1&stream=${enc(name)}`}>alert on this</a>`],
        ["ask", html`<a href=${`#/ask?sql=${enc(`SELECT * FROM ${name} ORDER BY t DESC LIMIT 20`)}`}>its newest readings by SQL</a>`],
      ]} />
      <${Rows} caption="Fields" rows=${Object.entries(stream.fields).map(([field, info]) => ({ name: field, ...info }))} columns=${[
        ["name", "field"], ["type"], ["unit", "unit", { view: ({ unit }) => unit || "–" }],
      ]} />
      <section class="card"><h2>Read it</h2><p><code>edgewake tail ${name}</code></p><p><code>curl -N ACCESS_SERVER${stream.events_path}</code></p></section>
      <${Erase} name=${name} withQueries what="All its readings, what was computed and summed up of them, and its files in the lake. What devices send later begins a new stream."
        ask=${(isWith) => `/v1/streams/${enc(name)}${isWith ? "?queries=true" : ""}`} />`}<//>`;
}
