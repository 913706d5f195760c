/* Continuous queries: the list, one of them, and the editor: check, preview, register. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { columnsOf, Table } from "../live/cards.js";
import { Chart } from "../live/detail.js";
import { clock, rate, whole, words } from "../live/format.js";
import { Series } from "../live/model.js";
import { api, enc, get } from "./api.js";
import { History } from "./history.js";
import { useModels } from "./live_data.js";
import { Ago, At, Do, Facts, Loaded, Rows, State, useLoaded } from "./ui.js";

const FIRST = `-- name: my_query
-- description: How often each device sends
SELECT device, count(*) AS readings
FROM my_stream
GROUP BY window(event_time, '10 seconds'), device
`;

export function Queries() {
  const loaded = useLoaded(() => get("/v1/queries?limit=500"), "queries");
  return html`<p><a class="button" href="#/queries/new">New query</a></p>
    <${Loaded} loaded=${loaded} empty="No query is registered.">${({ items }) => html`<${Rows} caption="Queries" rows=${items} sorts columns=${[
      ["name", "query", { view: ({ name }) => html`<a href=${`#/queries/${enc(name)}`}>${name}</a>` }],
      ["state", "state", { view: (row) => html`<${State} state=${row.state} />` }],
      ["readings_per_s", "readings", { number: true, view: (row) => (row.readings_per_s ? rate(row.readings_per_s) : "–") }],
      ["lag", "not computed yet", { number: true }],
      ["late", "late", { number: true }],
      ["watermark", "final to", { view: ({ watermark }) => html`<${At} at=${watermark} />` }],
      ["detail", "detail", { wraps: true }],
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
        ["not computed yet", query.lag === null ? null : `${whole(query.lag)} records`],
        ["windows final to", query.watermark ? html`<${At} at=${query.watermark} />` : null],
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
        </p></section>
      <${Results} key=${query.topic} query=${query} />
      <${History} kind="query" name=${name} />`}<//>`;
}

/** Its newest windows: a chart where one number says it, and a table. A window that is open is pale, one that was corrected says so. */
function Results({ query }) {
  const { name, watermark } = query;
  const { live, fault } = useModels({ names: [name] });
  const model = live.queries.get(name);
  const rows = model?.rows ?? [];
  if (model) model.finalTo = watermark;
  const columns = columnsOf(rows);
  const numbers = columns.filter((one) => typeof rows[0]?.[one] === "number");
  const steps = numbers.length ? stepsOf(rows, numbers[0]) : [];
  return html`${fault && html`<p class="card wrong" role="alert">${fault}; what you see is of before.</p>`}
    ${steps.length > 1 && html`<section class="card"><h2>${words(numbers[0])} <small>mean of its windows, with least and most</small></h2><${Chart} steps=${steps} name=${numbers[0]} /></section>`}
    <section class="card"><h2>Newest results</h2>${rows.length === 0
      ? html`<p class="quiet">No result in the last 15 minutes. A window is told when its first readings are computed.</p>`
      : html`<div class="console"><${Table} rows=${rows.map((row) => ({ window: clock(row.window_end), ...row}))} columns=${["window", ...columns]} isFinal=${(row) => model.isFinal(row)} caption="Newest results" /></div>
        <p class="quiet">Pale: still open. Windows up to ${watermark ? clock(watermark) : "–"} are final. ${query.late ? `${whole(query.late)} readings came too late for theirs: ` : ""}${query.late ? html`<a href="#/streams/late_readings">late readings</a>` : ""}</p>`}
      <p class="actions"><a class="button" href=${`#/boards`}>Put on a board</a><a class="button" href=${`#/ask?sql=${enc(`SELECT * FROM ${name} ORDER BY window_end DESC LIMIT 100`)}`}>Ask in SQL</a></p>
      <dl class="ways"><dt>in a terminal</dt><dd><code>edgewake tail ${name}</code></dd><dt>by HTTP</dt><dd><code>curl -N '${query.events_urls[0] ?? `http://ACCESS-SERVER${query.events_path}`}'</code></dd></dl></section>`;
}

function stepsOf(rows, field) {
  const points = new Series();
  for (const row of rows.toReversed()) if (typeof row[field] === "number") points.take(row[field], row.window_end);
  return points.steps;
}

export function Editor({ params }) {
  const from = params.get("from");
  const loaded = useLoaded(async () => (from ? (await get(`/v1/queries/${enc(from)}`)).text : (params.get("text") ?? FIRST)), `editor ${from}`, 3_600_000);
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
