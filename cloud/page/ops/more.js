/* Questions in SQL, and the audit. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { Table } from "../live/cards.js";
import { api, get } from "./api.js";
import { Ago, Loaded, Rows, useLoaded } from "./ui.js";

export function Ask({ params }) {
  const [sql, setSql] = useState(params.get("sql") ?? "SELECT * FROM host_metrics ORDER BY t DESC LIMIT 20");
  const [answer, setAnswer] = useState(null);
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const ask = async () => {
    setBusy(true);
    setFault("");
    try {
      setAnswer(await api("POST", "/v1/sql", { sql }));
    } catch (error) {
      setFault(error.message);
    }
    setBusy(false);
  };
  const rows = answer?.rows.map((row) => Object.fromEntries(answer.columns.map(({ name }, i) => [name, row[i]])));
  return html`<section class="card"><label for="sql">One SELECT over streams, queries and summaries, past and present</label>
      <textarea id="sql" rows="6" spellcheck="false" value=${sql} onInput=${({ target }) => setSql(target.value)}
        onKeyDown=${(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && ask()}></textarea>
      <p class="actions"><button type="button" class="primary" disabled=${isBusy} onClick=${ask}>Ask</button><small>Ctrl + Enter</small></p>
      <p class="fault" role="status">${fault}</p></section>
    ${answer && html`<section class="card"><h2>Answer <small>${rows.length} rows in ${answer.seconds.toFixed(2)} s${answer.is_cut ? ", there are more" : ""}</small></h2>
      <${Table} rows=${rows} columns=${answer.columns.map(({ name }) => name)} caption="Answer" /></section>`}`;
}

export function Audit({ params }) {
  const before = params.get("before") ?? "";
  const loaded = useLoaded(() => get(`/v1/audit?${new URLSearchParams({ limit: 100, ...(before && { before }) })}`), `audit ${before}`);
  return html`<p class="quiet">Who changed what, and who read what devices sent, newest first; of this server since it started. Its log has all. What was erased for good is under <a href="#/erasures">Erasures</a>.</p>
    <${Loaded} loaded=${loaded} empty="Nothing was changed since this server started.">${({ items, next }) => html`<${Rows} caption="Audit" rows=${items.map((one) => ({ id: one.number, ...one }))} columns=${[
      ["at", "when", { view: ({ at }) => html`<${Ago} at=${at} />` }],
      ["holder", "who"], ["method", "did"], ["path", "what"],
      ["status", "answer", { number: true }],
      ["detail", "detail", { view: ({ detail }) => detail || "–" }],
    ]} />${next !== null && html`<p><a href=${`#/audit?before=${next}`}>Older</a></p>`}`}<//>`;
}
