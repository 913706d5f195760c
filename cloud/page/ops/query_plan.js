/* How a query is computed: its class and why, what it costs, what is done with a reading. */

import { html } from "../vendor/htm/standalone.module.js";
import { counted, whole } from "../live/format.js";
import { enc, get } from "./api.js";
import { useLoaded } from "./ui.js";

const AGAIN_MS = 60_000; /* only another text changes it */

/** `Spark plans 312 of at most 20 000 expressions for it; each reading becomes 6 rows.` */
export const costOf = ({ cost, cost_max: most, rows }) => `Spark plans ${whole(cost)} of at most ${whole(most)} expressions for it; each reading becomes ${counted(rows, "rows")}.`;

export const Steps = ({ found }) => html`<ol aria-label="What is done with a reading">${found.plan.map((step) => html`<li>${step}</li>`)}</ol>
  <p class="quiet">Reads ${found.streams.join(", ")}. Columns of its results: ${found.columns.map((one, i) => html`${i > 0 && ", "}<code>${one}</code>`)}.</p>`;

/** Of a query that is registered. */
export function Plan({ name, registeredAt }) {
  const { data, error } = useLoaded(() => get(`/v1/queries/${enc(name)}/plan`), `plan ${name} ${registeredAt}`, AGAIN_MS);
  if (data === null) return error ? html`<section class="card"><h2>How it is computed</h2><p class="fault" role="alert">${error.message}</p></section>` : "";
  return html`<section class="card plan"><h2>How it is computed <small>${data.execution}</small></h2>
    <p>${data.execution === "shared" ? "Together with others" : "By itself"}: ${data.why}.</p>
    <p class="quiet">${costOf(data)}</p>
    <details><summary>What is done with a reading</summary><${Steps} found=${data} /></details></section>`;
}
