/* Dead letters, SQL, sleeping clients and requests of devices. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { Table } from "../live/cards.js";
import { api, enc, get } from "./api.js";
import { Ago, bytes, Do, Loaded, Rows, State, useLoaded } from "./ui.js";

export function Letters({ params }) {
  const reason = params.get("reason") ?? "";
  const before = params.get("before") ?? "";
  const query = new URLSearchParams({ limit: 50, ...(reason && { reason }), ...(before && { before }) });
  const loaded = useLoaded(() => get(`/v1/dead-letters?${query}`), `letters ${query}`);
  return html`<p class="quiet">What was refused, byte for byte, newest first${reason && html`, of reason <b>${reason}</b> (<a href="#/letters">all</a>)`}.</p>
    <${Loaded} loaded=${loaded} empty="Nothing was refused.">${(page) => html`<${Rows} caption="Dead letters" rows=${page.items} columns=${[
      ["received_at", "when", { view: ({ received_at }) => html`<${Ago} at=${received_at} />` }],
      ["device"],
      ["reason", "reason", { view: (row) => html`<a href=${`#/letters?reason=${enc(row.reason)}`}>${row.reason}</a>` }],
      ["detail"],
      ["preview", "begins with", { view: ({ preview }) => html`<code>${preview}</code>` }],
      ["bytes", "size", { number: true, view: (row) => bytes(row.bytes) }],
      ["offset", "what to do", { view: ({ offset }) => html`<a href=${`/v1/dead-letters/${offset}`} download>Download</a> <${Do} act=${async () => {
        const made = await api("POST", `/v1/dead-letters/${offset}/replay`);
        return made.was_replayed ? "was given back before" : `given back to ${made.stream}`;
      }}>Give back<//>` }],
    ]} />${page.next !== null && page.next !== undefined && html`<p><a href=${`#/letters?${new URLSearchParams({ ...(reason && { reason }), before: page.next })}`}>Older</a></p>`}`}<//>`;
}

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

export function Clients() {
  const leases = useLoaded(() => get("/v1/leases?limit=500"), "leases");
  const requests = useLoaded(() => get("/v1/requests?limit=100"), "requests");
  return html`<h2>Sleeping clients</h2>
    <${Loaded} loaded=${leases} empty="No client sleeps.">${({ items }) => html`<${Rows} caption="Sleeping clients" rows=${items} columns=${[
      ["id", "lease"], ["streams", "streams", { view: ({ streams }) => streams.join(", ") }],
      ["state", "state", { view: (row) => html`<${State} state=${row.disabled ? "disabled" : row.state} />` }],
      ["count", "unseen", { number: true }], ["wakes", "woken", { number: true }], ["failures", "failures", { number: true }],
      ["last_wake_at", "last woken", { view: (row) => html`<${Ago} at=${row.last_wake_at} />` }], ["endpoint"],
    ]} />`}<//>
    <h2>Requests of devices</h2>
    <${Loaded} loaded=${requests} empty="No device asks for anything.">${({ items }) => html`<${Rows} caption="Requests" rows=${items} columns=${[
      ["device"], ["name"], ["state"], ["received_at", "asked", { view: (row) => html`<${Ago} at=${row.received_at} />` }],
    ]} />`}<//>`;
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
