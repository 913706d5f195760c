/* What comes on a stream, as it comes: readings that a filter passes, some of their fields, until it is paused. */

import { html, useRef, useState } from "../vendor/htm/standalone.module.js";
import { Table } from "../live/cards.js";
import { clock, unitSaid, whole } from "../live/format.js";
import { enc } from "./api.js";
import { useRecent } from "./live_data.js";
import { programsOf } from "./programs.js";
import { Ways } from "./ui.js";

const ROWS_KEPT = 200; /* newest readings that are shown */
const MINUTES = 5; /* what is looked back at first */
const OWN = new Set(["stream", "epoch", "seq", "received_at"]); /* said by the page, or asked for by name */

/** `params`: `where` and `select` of the address, so that a colleague who opens it sees the same. */
export function Console({ stream, params }) {
  const [asked, setAsked] = useState({ where: params.get("where") ?? "", select: params.get("select") ?? "" });
  const [isPaused, setPaused] = useState(false);
  const rows = useRef([]);
  const held = useRef([]); /* what came while somebody read further down: it would move his rows */
  const box = useRef(null);
  const scroller = () => box.current?.querySelector(".scroll");
  const isReading = () => (scroller()?.scrollTop ?? 0) > 0;
  const keep = (...newest) => {
    rows.current = [...newest, ...held.current, ...rows.current].slice(0, ROWS_KEPT);
    held.current = [];
  };
  const { fault, isRefused, isCut } = useRecent({
    key: JSON.stringify([stream.name, asked]), names: [stream.name], minutes: MINUTES, isPaused, ...asked,
    begin: () => {
      rows.current = held.current = [];
      scroller()?.scrollTo(0, 0);
    },
    take: (event) => {
      if (isReading()) held.current = [event, ...held.current].slice(0, ROWS_KEPT);
      else keep(event);
    },
  });
  const [, draw] = useState(0);
  const toNewest = () => {
    keep();
    scroller().scrollTop = 0;
    draw((n) => n + 1);
  };
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const next = { where: form.get("where").trim(), select: form.get("select").trim() };
    setAsked(next);
    setPaused(false);
    const query = new URLSearchParams(Object.entries(next).filter(([, said]) => said));
    history.replaceState(null, "", `#/streams/${enc(stream.name)}${query.size ? `?${query}` : ""}`);
  };
  const wrong = isRefused && (fault.startsWith("select") ? "select" : "where");
  const columns = asked.select ? [...new Set(rows.current.flatMap((row) => Object.keys(row)))] : ["t", "device", ...Object.keys(stream.fields)].filter((one) => !OWN.has(one));
  const field = (name, label, hint) => html`<label>${label} <input name=${name} placeholder=${hint} spellcheck=${false} autocomplete="off" autocapitalize="off" defaultValue=${asked[name]}
    aria-invalid=${wrong === name ? "true" : null} aria-describedby=${wrong === name ? "refused" : null} /></label>`;
  return html`<section class="card"><h2>As it comes <small>${isPaused ? "paused" : `the newest ${ROWS_KEPT}`}</small></h2>
      <form class="actions bare filters" aria-label="What is shown" onSubmit=${submit}>
        ${field("where", "where", whereOf(stream))}${field("select", "select", "device, all fields")}
        <button type="submit">Show</button>
        <button type="button" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button></form>
      ${isRefused ? html`<p class="fault" id="refused" role="alert">${fault}</p>` : fault && html`<p class="fault" role="alert">${fault}; what you see is of before.</p>`}
      <div class="console" ref=${box}>${held.current.length > 0 && html`<button type="button" class="newer" onClick=${toNewest}>${whole(held.current.length)}${held.current.length === ROWS_KEPT ? "+" : ""} new</button>`}<${Table} rows=${rows.current.map(shown)} columns=${columns} unitOf=${(name) => (asked.select ? "" : unitSaid(stream.fields[name]?.unit ?? ""))} caption="Newest readings" /></div>
      ${rows.current.length === 0 && !isRefused && html`<p class="quiet">${asked.where ? `Nothing of the last ${MINUTES} minutes passes.` : `Nothing came in the last ${MINUTES} minutes.`}</p>`}
      ${isCut && html`<p class="quiet">There was more in these ${MINUTES} minutes than is looked through: the newest is shown.</p>`}
      <${Ways} of=${[
        ["in a terminal", `edgewake tail ${stream.name}${asked.where && ` --where ${quoted(asked.where)}`}${asked.select && ` --select ${quoted(asked.select)}`}`],
        ["as curl", curlOf(stream, asked)],
        ...programsOf(stream, { name: stream.name, back: `-${MINUTES}m`, ...asked }),
        ["as a query", html`<a href=${`#/queries/new?text=${enc(queryOf(stream, asked))}`}>${asked.select ? "these columns as results of their own" : "count it each ten seconds"}</a>`],
      ]} /></section>`;
}

const shown = (row) => ("t" in row ? { ...row, t: clock(row.t ?? row.received_at) } : row);

/** A filter as it could be, of a field that there is. */
function whereOf({ fields }) {
  const [number] = Object.entries(fields).find(([, { type }]) => type === "number") ?? [];
  return number ? `${number} > 10` : "device = 'car-07'";
}

/** A text as one word of a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Of an address within quotes of a shell: what `encodeURIComponent` leaves, too. */
const inAddress = (text) => enc(text).replaceAll("'", "%27");

export function curlOf({ events_path, events_urls }, { where, select }) {
  const more = Object.entries({ where, select }).filter(([, said]) => said).map(([name, said]) => `&${name}=${inAddress(said)}`);
  return `curl -N '${events_urls[0] ?? `http://ACCESS-SERVER${events_path}`}?from=-${MINUTES}m${more.join("")}'`;
}

export function queryOf({ name }, { where = "", select = "" } = {}) {
  const from = `FROM ${name}\n${where && `WHERE ${where}\n`}`;
  return select
    ? `-- name: ${name}_chosen\n-- description: Readings of ${name}, some of their fields\nSELECT ${select}\n${from}`
    : `-- name: ${name}_counts\n-- description: How often each device sends ${name}\nSELECT device, count(*) AS readings\n${from}GROUP BY window(event_time, '10 seconds'), device\n`;
}
