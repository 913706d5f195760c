/* Streams: the list, and one of them with its fields and how to read it. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { rate } from "../live/format.js";
import { enc, get } from "./api.js";
import { Erase } from "./erasures.js";
import { Ago, Do, Facts, Loaded, Rows, useLoaded } from "./ui.js";

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
      <${Gaps} stream=${name} />
      <section class="card"><h2>Read it</h2><p><code>edgewake tail ${name}</code></p><p><code>curl -N ACCESS_SERVER${stream.events_path}</code></p></section>
      <${Erase} name=${name} withQueries what="All its readings, what was computed and summed up of them, and its files in the lake. What devices send later begins a new stream."
        ask=${(isWith) => `/v1/streams/${enc(name)}${isWith ? "?queries=true" : ""}`} />`}<//>`;
}

/** Looked for in the log, so once, and again when asked. */
function Gaps({ stream }) {
  const [found, setFound] = useState(null);
  const look = async () => {
    setFound(await get(`/v1/streams/${enc(stream)}/gaps`));
    return "";
  };
  const older = found?.is_cut ? `; there are older ones` : "";
  return html`<section class="card"><h2>Lost or missing</h2><p class="actions"><${Do} act=${look}>Look for gaps<//></p>
      ${found && html`<p class="quiet" role="status">${found.items.length || "No"} gap${found.items.length === 1 ? "" : "s"} in its newest ${found.records.toLocaleString("en")} records${older}.</p>`}</section>
    ${found && found.items.length > 0 && html`<${Rows} caption="Gaps" rows=${found.items.map((gap) => ({ id: `${gap.partition}:${gap.offset}`, ...gap }))} columns=${[
      ["at", "said", { view: ({ at }) => html`<${Ago} at=${at} />` }],
      ["device", "device", { view: ({ device }) => html`<a href=${`#/devices/${enc(device)}`}>${device}</a>` }],
      ["reason"], ["count", "readings lost", { number: true }], ["epoch", "epoch", { number: true }], ["seq", "before number", { number: true }],
    ]} />`}`;
}
