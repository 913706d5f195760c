/* Where a query is written: check, preview, register or replace. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { columnsOf, Table } from "../live/cards.js";
import { clock, unitSaid } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { faultsOf, SqlEditor } from "./editor.js";
import { costOf, Steps } from "./query_plan.js";
import { Loaded, useLoaded } from "./ui.js";

const PREVIEW_ROWS = 50;
const SPANS = [[5, "5 minutes"], [60, "hour"], [1440, "day"]];
const FIRST = `-- name: my_query
-- description: How often each device sends
SELECT device, count(*) AS readings
FROM my_stream
GROUP BY window(event_time, '10 seconds'), device
`;

export function Editor({ params }) {
  const from = params.get("from");
  const loaded = useLoaded(async () => (from ? (await get(`/v1/queries/${enc(from)}`)).text : (params.get("text") ?? FIRST)), `editor ${from}`, 3_600_000);
  return html`<nav class="crumbs"><a href="#/queries">Queries</a> › ${from ? `edit ${from}` : "new"}</nav>
    <${Loaded} loaded=${loaded}>${(text) => html`<${Form} key=${from} first=${text} name=${from} />`}<//>`;
}

const NOTHING = { found: null, faults: [], preview: null, busy: "" };

function Form({ first, name }) {
  const [text, setText] = useState(first);
  const [state, setState] = useState(NOTHING);
  const [minutes, setMinutes] = useState(SPANS[0][0]);
  const attempt = async (busy, work) => {
    setState((before) => ({ ...before, busy, faults: [] }));
    try {
      const more = await work();
      setState((before) => ({ ...before, ...more, busy: "" }));
    } catch (error) {
      setState({ ...NOTHING, faults: faultsOf(error) });
    }
  };
  const write = (next) => {
    setText(next);
    setState((before) => ({ ...before, found: null, faults: [] })); /* they were about another text */
  };
  const check = () => attempt("checking", async () => ({ found: await api("POST", "/v1/queries:check", { text }) }));
  const look = () => attempt("computing", async () => ({ preview: { minutes, ...(await api("POST", "/v1/queries:preview", { text, minutes, rows: PREVIEW_ROWS })) } }));
  const register = () => attempt("registering", async () => {
    const made = name ? await api("PUT", `/v1/queries/${enc(name)}`, { text }) : await api("POST", "/v1/queries", { text });
    location.hash = `#/queries/${enc(made.name)}`;
  });
  const isBusy = state.busy !== "";
  return html`<section class="card"><${SqlEditor} id="text" label="Query file" first=${first} faults=${state.faults} onText=${write} onSend=${check} />
      <p class="actions"><button type="button" disabled=${isBusy} onClick=${check}>Check</button>
        <button type="button" disabled=${isBusy} onClick=${look}>Preview</button>
        <label>the last <select value=${minutes} onChange=${({ target }) => setMinutes(Number(target.value))}>${SPANS.map(([one, title]) => html`<option value=${one}>${title}</option>`)}</select></label>
        <button type="button" class="primary" disabled=${isBusy} onClick=${register}>${name ? "Replace" : "Register"}</button>
        <small role="status">${isBusy ? `${state.busy}…` : "Ctrl + Enter checks"}</small></p>
      ${state.found && html`<div class="plan"><p class="state"><i class="dot" data-state="well"></i> Good; ${state.found.execution}: ${state.found.why}</p>
        <p class="quiet">${costOf(state.found)}</p><${Steps} found=${state.found} /></div>`}</section>
    ${state.preview && html`<${Preview} preview=${state.preview} />`}`;
}

function Preview({ preview: { rows, units, is_cut: isCut, minutes } }) {
  const span = SPANS.find(([one]) => one === minutes)[1];
  const columns = columnsOf(rows);
  const hasWindows = rows.some((row) => row.window_end);
  return html`<section class="card"><h2>Preview <small>of the last ${span}; nothing is registered</small></h2>${rows.length === 0
    ? html`<p class="quiet">No row of the last ${span}.</p>`
    : html`<div class="console"><${Table} rows=${rows.map((row) => ({ ...(hasWindows && { "window to": clock(row.window_end) }), ...row }))} columns=${[...(hasWindows ? ["window to"] : []), ...columns]} isFinal=${(row) => row.complete !== false} unitOf=${(name) => unitSaid(units[name] ?? "")} caption="Preview" /></div>
      <p class="quiet">${isCut ? `The first ${rows.length} rows; there are more. ` : ""}${rows.some((row) => row.complete === false) ? "Pale: its window began before this time, so it lacks readings." : ""}</p>`}</section>`;
}
