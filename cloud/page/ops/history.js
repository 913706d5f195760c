/* What happened: of one thing on its page, or of all. */

import { html } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { local } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { STEPS } from "./erasures.js";
import { Ago, Chips, Do, Loaded, More, Rows, State, useLoaded } from "./ui.js";

/* What a page opens for a problem. */
export const PAGES = {
  query: (name) => `#/queries/${enc(name)}`,
  dead_letters: (name) => `#/letters?reason=${enc(name)}`,
  alert: (name) => (name ? `#/alerts/${enc(name)}` : "#/alerts"),
  lease: () => "#/clients",
  loss: () => "#/gaps?look=1",
  device: (mark) => (mark === "units" ? "#/streams" : `#/devices?has=${enc(mark)}`),
};

const HERE = { device: "devices", loss: "devices", query: "queries", erasure: "erasures" };
const PLAIN = new Set(["state", "step", "detail"]); /* they say by themselves what they are */
const said = (facts, kind) => Object.entries(facts).filter(([name, fact]) => fact !== 0 && fact !== false && !(name === "registered" && fact === true))
  .map(([name, fact]) => (PLAIN.has(name) ? local(String((kind === "erasure" && STEPS[fact]) || fact)) : `${name.replaceAll("_", " ")} ${fact}`)).join(" · ") || "–";

export function History({ kind, name, before = "" }) {
  const query = new URLSearchParams({ limit: name ? 20 : 100, ...(kind && { kind }), ...(name && { name }), ...(before && { before }) });
  const loaded = useLoaded(() => get(`/v1/history?${query}`), `history ${query}`);
  return html`${name && html`<h2 class="gap">What happened</h2>`}
    <${Loaded} loaded=${loaded} empty="Nothing happened yet that would stand here.">${({ items, next }) => html`<${Rows} caption="What happened" rows=${items.map((one) => ({ id: one.number, ...one }))} columns=${[
      ["at", "when", { view: ({ at }) => html`<${Ago} at=${at} />` }],
      ...(name ? [] : [["name", "what", { view: (row) => html`${row.kind} ${HERE[row.kind] ? html`<a href=${`#/${HERE[row.kind]}/${enc(row.name)}`}>${row.name}</a>` : row.name}` }]]),
      ["facts", "from then on", { wraps: true, view: ({ facts, kind: of }) => said(facts, of) }],
    ]} />${next !== null && html`<p><a href=${`#/history?show=events&before=${next}`}>Older</a></p>`}`}<//>`;
}

const KINDS = ["", "device", "loss", "query", "part", "repair", "request", "erasure"];

export const Histories = ({ params }) => (params.get("show") === "events"
  ? html`<${Tabs} shown="events" /><${Chips} path="#/history" params=${params} name="kind" values=${KINDS} /><${History} kind=${params.get("kind") ?? ""} before=${params.get("before") ?? ""} />`
  : html`<${Tabs} shown="problems" /><${Problems} params=${params} />`);

const Tabs = ({ shown }) => html`<p class="chips" role="group" aria-label="What is shown"><a href="#/history" aria-current=${shown === "problems" ? "true" : "false"}>problems</a> <a href="#/history?show=events" aria-current=${shown === "events" ? "true" : "false"}>what happened</a></p>`;

/** Problems, when each began and ended, and who took it. */
function Problems({ params }) {
  const before = params.get("before") ?? "";
  const loaded = useLoaded(() => get(`/v1/problems?${new URLSearchParams({ limit: 100, ...(before && { before }) })}`), `problems ${before}`);
  const acknowledge = (id) => async () => {
    const note = prompt("What do you do about it? Others read this.", "");
    if (note === null) return "";
    await api("POST", `/v1/problems/${enc(id)}/acknowledge`, { note });
    loaded.again();
    return "";
  };
  return html`<${Loaded} loaded=${loaded} empty="No problem in the last 90 days.">${({ items, next }) => html`<${Rows} caption="Problems" rows=${items} columns=${[
    ["state", "state", { view: (row) => html`<${State} state=${row.ended_at ? "over" : row.acknowledged_at ? "acknowledged" : "open"} />` }],
    ["text", "what", { wraps: true, view: (row) => (PAGES[row.kind] ? html`<a href=${PAGES[row.kind](row.name)}>${local(row.text)}</a>` : local(row.text)) }],
    ["began_at", "began", { view: (row) => html`<${Ago} at=${row.began_at} />` }],
    ["ended_at", "lasted", { view: (row) => duration(((row.ended_at ?? Date.now()) - row.began_at) / 1000) }],
    ["acknowledged_by", "who has it", { view: (row) => (row.acknowledged_at ? html`<b>${row.acknowledged_by}</b> <small>${row.note} <${Ago} at=${row.acknowledged_at} /></small>` : row.ended_at ? "–" : html`<${Do} act=${acknowledge(row.id)} label=${`Take it: ${row.text}`} done="">Take it<//>`) }],
  ]} /><${More} path="#/history" params=${params} name="before" next=${next}>Older<//>`}<//>`;
}
