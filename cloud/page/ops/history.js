/* What happened: of one thing on its page, or of all. */

import { html } from "../vendor/htm/standalone.module.js";
import { enc, get } from "./api.js";
import { Ago, Loaded, Rows, useLoaded } from "./ui.js";

const HERE = { device: "devices", query: "queries", erasure: "erasures" };
const said = (facts) => Object.entries(facts).filter(([, fact]) => fact !== 0 && fact !== false).map(([name, fact]) => (name === "state" || name === "step" ? fact : `${name.replaceAll("_", " ")} ${fact}`)).join(" · ") || "–";

export function History({ kind, name, before = "" }) {
  const query = new URLSearchParams({ limit: name ? 20 : 100, ...(kind && { kind }), ...(name && { name }), ...(before && { before }) });
  const loaded = useLoaded(() => get(`/v1/history?${query}`), `history ${query}`);
  return html`${name && html`<h2 class="gap">What happened</h2>`}
    <${Loaded} loaded=${loaded} empty="Nothing changed since this server started.">${({ items, next }) => html`<${Rows} caption="What happened" rows=${items.map((one) => ({ id: one.number, ...one }))} columns=${[
      ["at", "when", { view: ({ at }) => html`<${Ago} at=${at} />` }],
      ...(name ? [] : [["name", "what", { view: (row) => html`${row.kind} ${HERE[row.kind] ? html`<a href=${`#/${HERE[row.kind]}/${enc(row.name)}`}>${row.name}</a>` : row.name}` }]]),
      ["facts", "from then on", { view: ({ facts }) => said(facts) }],
    ]} />${next !== null && html`<p><a href=${`#/history?before=${next}`}>Older</a></p>`}`}<//>`;
}

export const Histories = ({ params }) => html`<p class="quiet">Devices, queries, parts, repairs and erasures, newest first, as this server saw it since it started.</p>
  <${History} kind=${params.get("kind") ?? ""} before=${params.get("before") ?? ""} />`;
