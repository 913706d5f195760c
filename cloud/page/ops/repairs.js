/* Windows computed once more from the log: asked for here, and how far the last ones came. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { local, whole, words } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { Ago, At, Do, Rows, State, useLoaded } from "./ui.js";

const HOUR_MS = 3_600_000;
const SPANS = [[1, "hour"], [24, "day"], [168, "week"]];
const SHOWN = 5;

export function Repairs({ name, registeredAt }) {
  const [hours, setHours] = useState(SPANS[0][0]);
  const { data, error, again } = useLoaded(() => get(`/v1/queries/${enc(name)}/repairs?limit=${SHOWN}`), `repairs ${name} ${registeredAt}`);
  const ask = (path, body) => async () => {
    await api("POST", `/v1/queries/${enc(name)}/${path}`, body());
    again();
    return "asked";
  };
  return html`<section class="card"><h2>Compute again <small>from the log, as far as it is kept; rows that differ are told with a higher revision</small></h2>
    ${error && html`<p class="fault" role="alert">${error.message}</p>`}
    <p class="actions"><label>Windows of the last <select value=${hours} onChange=${({ target }) => setHours(Number(target.value))}>${SPANS.map(([one, title]) => html`<option value=${one}>${title}</option>`)}</select></label>
      <${Do} act=${ask("repairs", () => ({ begin: Date.now() - hours * HOUR_MS }))}>Repair<//>
      <${Do} danger act=${ask("rebuild", () => ({}))} confirm=${`Remove the state of ${name} and compute it again? Other queries of its lane wait meanwhile.`}>Rebuild its state<//></p>
    ${data?.items.length > 0 && html`<div class="results"><${Rows} caption="Repairs" rows=${data.items} columns=${[
      ["kind", "what", { view: (row) => words(row.kind) }],
      ["asked_at", "asked", { view: (row) => html`<${Ago} at=${row.asked_at} /> <small>by ${row.asked_by}</small>` }],
      ["state", "state", { view: (row) => html`<${State} state=${row.state} />` }],
      ["done_to", "done to", { view: ({ done_to: at }) => html`<${At} at=${at} />` }],
      ["changed", "rows changed", { number: true, view: (row) => whole(row.added + row.changed + row.withdrawn) }],
      ["unchanged", "as they were", { number: true }],
      ["detail", "detail", { wraps: true, view: (row) => local(row.detail) || "–" }],
    ]} /></div>`}</section>`;
}
