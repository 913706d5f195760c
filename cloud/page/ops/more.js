/* The audit. */

import { html } from "../vendor/htm/standalone.module.js";
import { get } from "./api.js";
import { Ago, Loaded, Rows, useLoaded } from "./ui.js";

export function Audit({ params }) {
  const before = params.get("before") ?? "";
  const loaded = useLoaded(() => get(`/v1/audit?${new URLSearchParams({ limit: 100, ...(before && { before }) })}`), `audit ${before}`);
  return html`<p class="quiet">Who changed what, and who read what devices sent, newest first, at all operations servers: the newest 10 000 of the last year. The log of each has its own. What was erased for good is under <a href="#/erasures">Erasures</a>.</p>
    <${Loaded} loaded=${loaded} empty="Nothing was changed in the last year.">${({ items, next }) => html`<${Rows} caption="Audit" rows=${items.map((one) => ({ id: one.number, ...one }))} columns=${[
      ["at", "when", { view: ({ at }) => html`<${Ago} at=${at} />` }],
      ["holder", "who"], ["method", "did"], ["path", "what"],
      ["status", "answer", { number: true }],
      ["detail", "detail", { view: ({ detail }) => detail || "–" }],
    ]} />${next !== null && html`<p><a href=${`#/audit?before=${next}`}>Older</a></p>`}`}<//>`;
}
