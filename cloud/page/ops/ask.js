/* Questions in SQL: one at a time, seen while it is under way, and one may stop it. */

import { html, useEffect, useRef, useState } from "../vendor/htm/standalone.module.js";
import { Table } from "../live/cards.js";
import { counted, instant, unitSaid } from "../live/format.js";
import { api, enc, get, getAll } from "./api.js";
import { faultsOf, SqlEditor } from "./editor.js";
import { Loaded, useLoaded } from "./ui.js";

const LOOK_MS = 3_600_000; /* the first question is made once */
const TICK_MS = 100;
const NOTHING = { answer: null, faults: [], began: null };

/** A first question that has an answer here: about the stream that sends most now, else about any. */
function firstOf(streams) {
  const [first] = streams.toSorted((a, b) => (b.readings_per_s ?? 0) - (a.readings_per_s ?? 0));
  return first ? `SELECT * FROM "${first.name}" ORDER BY t DESC LIMIT 20` : "SELECT 6 * 7 AS answer";
}

export function Ask({ params }) {
  const asked = params.get("sql");
  const loaded = useLoaded(async () => ({ first: asked ?? firstOf(await getAll("/v1/streams").then(({ items }) => items, () => [])) }), `first ${asked}`, LOOK_MS);
  return html`<${Loaded} loaded=${loaded}>${({ first }) => html`<${Question} first=${first} />`}<//>`;
}

function Question({ first }) {
  const [sql, setSql] = useState(first);
  const [state, setState] = useState(NOTHING);
  const stopper = useRef(null);
  useEffect(() => () => stopper.current?.abort(), []);
  const ask = async () => {
    if (stopper.current) return;
    const mine = (stopper.current = new AbortController());
    setState((before) => ({ ...before, faults: [], began: Date.now() }));
    history.replaceState(null, "", `#/ask?sql=${enc(sql)}`);
    try {
      const answer = await api("POST", "/v1/sql", { sql }, mine.signal);
      setState({ answer, faults: [], began: null });
    } catch (error) {
      setState((before) => ({ ...before, faults: mine.signal.aborted ? [] : faultsOf(error), began: null }));
    }
    stopper.current = null;
  };
  const write = (next) => {
    setSql(next);
    setState((before) => (before.faults.length ? { ...before, faults: [] } : before));
  };
  const { answer, faults, began } = state;
  const columns = answer ? keysOf(answer.columns) : [];
  const unitOf = (name) => unitSaid(answer.columns[columns.indexOf(name)].unit);
  const rows = answer?.rows.map((row) => Object.fromEntries(answer.columns.map(({ type }, i) => [columns[i], shown(row[i], type)])));
  return html`<section class="card"><${SqlEditor} id="sql" label="One SELECT over streams, queries and summaries, past and present" first=${first} faults=${faults} onText=${write} onSend=${ask} />
      <p class="actions"><button type="button" class="primary" disabled=${began !== null} onClick=${ask}>Ask</button>
        ${began === null ? html`<small>Ctrl + Enter</small>` : html`<button type="button" onClick=${() => stopper.current?.abort()}>Stop</button><${Waiting} since=${began} />`}</p></section>
    ${answer && html`<section class="card" aria-busy=${began !== null}><h2>Answer <small>${counted(rows.length, "rows")} in ${answer.seconds.toFixed(2)} s${answer.is_cut ? ", there are more" : ""}</small></h2>
      ${rows.length ? html`<div class="console answer"><${Table} rows=${rows} columns=${columns} unitOf=${unitOf} caption="Answer" /></div>` : html`<p class="quiet">No row is like that.</p>`}
      <p class="quiet">${stands(answer)}${answer.columns.some(({ type }) => isTime(type)) && ` Times are those of ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`}</p></section>`}`;
}

/** The columns of an answer, each by a name of its own: two of the same name are two. */
function keysOf(columns) {
  const seen = new Map();
  return columns.map(({ name }) => {
    const nth = (seen.get(name) ?? 0) + 1;
    seen.set(name, nth);
    return nth === 1 ? name : `${name} (${nth})`;
  });
}

const isTime = (type) => type.startsWith("TIMESTAMP");

/** A value of an answer; a time as the local one. */
const shown = (one, type) => (isTime(type) && one !== null && !Number.isNaN(Date.parse(one)) ? instant(Date.parse(one)) : one);

/** How long a question has been under way. */
function Waiting({ since }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<span class="waiting-bar" role="progressbar" aria-label="The question is under way"><i></i></span><small role="timer">${((now - since) / 1000).toFixed(1)} s</small>`;
}

/** What an answer stands on. */
function stands({ past, present }) {
  const read = past.rows == null ? "what you may see of the lake and of Kafka" : `${counted(past.rows, "rows")} of ${counted(past.files, "files")} of the lake, ${counted(present.rows, "rows")} of Kafka`;
  const left = present.records_left ? `; ${counted(present.records_left, "records")} of Kafka were not read` : "";
  const lost = past.lost_records ? `; ${counted(past.lost_records, "records")} were lost before the lake had them` : "";
  return `Read: ${read}${left}${lost}.`;
}
