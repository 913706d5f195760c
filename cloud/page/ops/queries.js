/* Continuous queries: the list, one of them, and the editor: check, preview, register. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { columnsOf, Table } from "../live/cards.js";
import { clock, rate } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { Ago, Do, Facts, Loaded, Rows, State, useLoaded } from "./ui.js";

const FIRST = `-- name: my_query
-- description: How often each device sends
SELECT device, count(*) AS readings
FROM my_stream
GROUP BY window(event_time, '10 seconds'), device
`;

export function Queries() {
  const loaded = useLoaded(() => get("/v1/queries?limit=500"), "queries");
  return html`<p><a class="button" href="#/queries/new">New query</a></p>
    <${Loaded} loaded=${loaded} empty="No query is registered.">${({ items }) => html`<${Rows} caption="Queries" rows=${items} columns=${[
      ["name", "query", { view: ({ name }) => html`<a href=${`#/queries/${enc(name)}`}>${name}</a>` }],
      ["state", "state", { view: (row) => html`<${State} state=${row.state} />` }],
      ["readings_per_s", "readings", { number: true, view: (row) => (row.readings_per_s ? rate(row.readings_per_s) : "–") }],
      ["lag", "not computed yet", { number: true }],
      ["late", "late", { number: true }],
      ["watermark", "final to", { view: ({ watermark }) => (watermark ? clock(watermark) : "–") }],
      ["detail"],
    ]} />`}<//>`;
}

export function Query({ name }) {
  const loaded = useLoaded(() => get(`/v1/queries/${enc(name)}`), `query ${name}`);
  return html`<nav class="crumbs"><a href="#/queries">Queries</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(query) => html`
      <${Facts} of=${[
        ["state", html`<${State} state=${query.state} />`],
        ["why", query.detail || null],
        ["reads", query.streams.join(", ") || query.stream],
        ["readings", query.readings_per_s ? rate(query.readings_per_s) : null],
        ["not computed yet", query.lag === null ? null : `${query.lag} records`],
        ["windows final to", query.watermark ? clock(query.watermark) : null],
        ["late readings", query.late],
        ["registered", html`<${Ago} at=${query.registered_at} />`],
      ]} />
      <section class="card"><h2>Text</h2><pre tabindex="0"><code>${query.text}</code></pre>
        <p class="actions">
          ${query.paused
            ? html`<${Do} act=${() => api("POST", `/v1/queries/${enc(name)}/resume`)} done="resumed">Resume<//>`
            : html`<${Do} act=${() => api("POST", `/v1/queries/${enc(name)}/pause`)} done="paused">Pause<//>`}
          <a class="button" href=${`#/queries/new?from=${enc(name)}`}>Edit</a>
          <a class="button" href=${`#/alerts?new=1&query=${enc(name)}`}>Alert on this</a>
          <${Do} danger act=${() => api("DELETE", `/v1/queries/${enc(name)}`)} confirm=${`Remove ${name}? Its results can be read for another hour.`} done="removed">Remove<//>
        </p></section>`}<//>`;
}

export function Editor({ params }) {
  const from = params.get("from");
  const loaded = useLoaded(async () => (from ? (await get(`/v1/queries/${enc(from)}`)).text : FIRST), `editor ${from}`);
  return html`<nav class="crumbs"><a href="#/queries">Queries</a> › ${from ? `edit ${from}` : "new"}</nav>
    <${Loaded} loaded=${loaded}>${(text) => html`<${Form} key=${from} first=${text} name=${from} />`}<//>`;
}

function Form({ first, name }) {
  const [text, setText] = useState(first);
  const [found, setFound] = useState(null);
  const [faults, setFaults] = useState([]);
  const [preview, setPreview] = useState(null);
  const attempt = async (work) => {
    try {
      setFaults([]);
      await work();
    } catch (error) {
      setFound(null);
      setFaults(error.problem?.errors?.length ? error.problem.errors : [{ detail: error.message }]);
    }
  };
  const check = () => attempt(async () => setFound(await api("POST", "/v1/queries:check", { text })));
  const look = () => attempt(async () => setPreview(await api("POST", "/v1/queries:preview", { text, minutes: 10, rows: 50 })));
  const register = () => attempt(async () => {
    const made = name ? await api("PUT", `/v1/queries/${enc(name)}`, { text }) : await api("POST", "/v1/queries", { text });
    location.hash = `#/queries/${enc(made.name)}`;
  });
  return html`<section class="card"><label for="text">Query file</label>
      <textarea id="text" rows="12" spellcheck="false" value=${text} onInput=${({ target }) => setText(target.value)}></textarea>
      <p class="actions"><button type="button" onClick=${check}>Check</button><button type="button" onClick=${look}>Preview the last ten minutes</button>
        <button type="button" class="primary" onClick=${register}>${name ? "Replace" : "Register"}</button></p>
      <div role="status">${faults.map(({ detail, line, column }) => html`<p class="fault">${line ? `line ${line}, column ${column}: ` : ""}${detail}</p>`)}
        ${found && html`<p><i class="dot" data-state="well"></i> Good; ${found.execution}: ${found.why}</p><ol>${found.plan.map((step) => html`<li>${step}</li>`)}</ol>`}</div></section>
    ${preview && html`<section class="card"><h2>Preview</h2>${preview.rows.length
      ? html`<${Table} rows=${preview.rows} columns=${columnsOf(preview.rows)} caption="Preview" />` : html`<p class="quiet">No row in the last ten minutes.</p>`}</section>`}`;
}
