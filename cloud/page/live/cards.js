/* The cards of the Live page: one for each stream, one for each query, and what to do where there is none yet. */

import { html } from "../vendor/htm/standalone.module.js";
import { age, called, cell, clock, moment, rate, sizedUnit, value, words } from "./format.js";
import { PlaceMap } from "./map.js";
import { FIELDS_SHOWN } from "./model.js";
import { Spark } from "./spark.js";

const BARS_MAX = 6;
const ROWS_MAX = 6;
/** How a stream, or a device on one, is, in words. */
export const STATES = { well: "heard as usual", late: "silent for longer than usual", unknown: "nothing heard lately" };

const ASKING = "What came before is asked for.";
const NOT_CONNECTED = "The server does not answer yet.";
const NOT_FOLLOWED = "Not followed: there are more streams than this page follows. Open it, or pin it, and it is.";

/** A stream: how it is, its fields, its map. */
export function StreamCard({ stream, now, isPinned, isFollowed, onPin }) {
  const state = stream.state(now);
  const fields = stream.shown;
  return html`<article class="card" data-stream=${stream.name} aria-label=${`Stream ${stream.name}`}>
    <${Head} model=${stream} href=${`#/streams/${encodeURIComponent(stream.name)}`} now=${now} state=${state}>
      <button type="button" class="pin" aria-pressed=${isPinned} title="Keep this card first" aria-label=${`Keep ${stream.name} first`}
        onClick=${() => onPin(stream.name)}>${isPinned ? "★" : "☆"}</button>
    <//>
    ${stream.heardAt === null
      ? html`<p class="quiet">${nothingHeard(isFollowed, stream.isPastKnown, ASKING, "No reading that is kept. The next one is shown here.")}</p>`
      : html`<div class="fields">${fields.slice(0, FIELDS_SHOWN).map(([name, field]) => html`<${Field} stream=${stream} name=${name} field=${field} now=${now} />`)}</div>
          ${fields.length > FIELDS_SHOWN && html`<p class="quiet">${fields.length - FIELDS_SHOWN} more fields: open the stream</p>`}
          ${stream.hasPlace && html`<${PlaceMap} stream=${stream} />`}`}
  </article>`;
}

/** Why a card is empty: nobody asked, nobody answered yet, or there is nothing. */
function nothingHeard(isFollowed, isAnswered, meanwhile, nothing) {
  if (!isFollowed) return NOT_FOLLOWED;
  return isAnswered ? nothing : meanwhile;
}

function Head({ model, href, now, state, children }) {
  const devices = model.devices?.size;
  const facts = [devices ? `${devices} ${devices === 1 ? "device" : "devices"}` : "", model.rate ? rate(model.rate(now)) : ""].filter(Boolean);
  return html`<header class="head">
    <h2><i class="dot" data-state=${state} title=${STATES[state] ?? ""}></i><a href=${href}>${model.name}</a></h2>
    <p class="facts">${facts.join(" · ")}${facts.length && model.heardAt ? " · " : ""}
      ${model.heardAt && html`<time data-state=${state} title=${moment(model.heardAt)}>${age(now - model.heardAt)}</time>`}</p>
    ${children}
  </header>`;
}

function Field({ stream, name, field, now }) {
  if (field.kind === "number") return html`<${Numeric} stream=${stream} name=${name} series=${field.state} now=${now} />`;
  if (field.kind === "boolean") return html`<div class="field" data-field=${name}><span class="label">${words(name)}</span><b class="figure">${field.state.last ? "on" : "off"}</b></div>`;
  return html`<${TopTexts} name=${name} texts=${field.state} />`;
}

function Numeric({ stream, name, series, now }) {
  const latest = stream.now(name);
  const ownUnit = stream.unitOf(name);
  const title = called(name, ownUnit);
  const { unit, by } = sizedUnit(latest?.mean ?? 0, ownUnit);
  const beside = latest && latest.most > latest.least ? `${value(latest.least / by)} – ${value(latest.most / by)}` : "";
  return html`<div class="field" data-field=${name}>
    <span class="label" title=${latest?.devices > 1 ? `mean of ${latest.devices} devices, then least and most` : name}>${title}</span>
    <span class="measured"><b class="figure">${value(latest && latest.mean / by)}</b>${unit && html`<small>\u2009${unit}</small>`}</span><span class="beside" title=${beside}>${beside}</span>
    <${Spark} steps=${series.steps} now=${now} label=${`${title} over the last 15 minutes`} />
  </div>`;
}

function TopTexts({ name, texts }) {
  const top = texts.top(3);
  return html`<div class="field texts" data-field=${name}><span class="label">${words(name)}</span>
    <ol>${top.map(([text, count]) => html`<li title=${text}><span>${text}</span><small>${Math.round((100 * count) / texts.total)} %</small></li>`)}</ol></div>`;
}

/** A query: its newest window as bars where it has one name and one number, else as a table. */
export function QueryCard({ query, now, isFollowed, isConnected }) {
  const rows = query.rows;
  return html`<article class="card" data-query=${query.name} aria-label=${`Query ${query.name}`}>
    <${Head} model=${query} href=${`#/queries/${encodeURIComponent(query.name)}`} now=${now} state=${query.heardAt ? "well" : "unknown"} />
    ${rows.length === 0 ? html`<p class="quiet">${nothingHeard(isFollowed, isConnected, NOT_CONNECTED, "No window yet. Its first results come with the first readings.")}</p>` : html`<${Rows} query=${query} rows=${rows} />`}
  </article>`;
}

function Rows({ query, rows }) {
  const newest = rows[0].window_end;
  const window = rows.filter((row) => row.window_end === newest);
  const columns = columnsOf(rows);
  const [names, numbers] = [columns.filter((c) => typeof rows[0][c] === "string"), columns.filter((c) => typeof rows[0][c] === "number")];
  const title = html`<p class="quiet"><time title=${moment(newest)}>window to ${clock(newest)}</time>${query.isFinal(rows[0]) ? ", final" : ", open"}</p>`;
  if (names.length === 1 && numbers.length > 0) {
    const shown = window.toSorted((a, b) => b[numbers[0]] - a[numbers[0]]).slice(0, BARS_MAX);
    const most = Math.max(...shown.map((row) => Math.abs(row[numbers[0]])), 1e-12);
    const unit = query.unitOf(numbers[0]);
    return html`${title}<ol class="bars" aria-label=${words(numbers[0])}>${shown.map((row) => html`<li data-final=${query.isFinal(row)}>
      <i style=${{ width: `${(100 * Math.abs(row[numbers[0]])) / most}%` }}></i><span>${row[names[0]]}</span><b>${value(row[numbers[0]])}${unit && html`<small>\u2009${unit}</small>`}</b></li>`)}</ol>
      <p class="quiet">${called(numbers[0], unit)}</p>`;
  }
  /* A query with groups shows its newest window, one without a row of each: which window that is of stands beside it. */
  const isOfOne = query.keys?.length > 0 || window.length > 1 || rows.length === window.length;
  if (!isOfOne) return html`<${Table} rows=${rows.slice(0, ROWS_MAX).map((row) => ({ [WINDOW_TO]: clock(row.window_end), ...row }))} columns=${[WINDOW_TO, ...columns]} isFinal=${(row) => query.isFinal(row)} unitOf=${(name) => query.unitOf(name)} caption=${query.name} />`;
  return html`${title}<${Table} rows=${window.slice(0, ROWS_MAX)} columns=${columns} isFinal=${(row) => query.isFinal(row)} unitOf=${(name) => query.unitOf(name)} caption=${query.name} />`;
}

const WINDOW_TO = "window_to"; /* of a table with rows of several windows */
const WINDOW = new Set(["query", "window_start", "window_end", "revision", "final", "complete"]);
/** The columns of results that say something, in their order. */
export const columnsOf = (rows) => [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => !WINDOW.has(name));

const LONG_CHARS = 32; /* a text of a table's cell that is longer takes several lines */

/** Is it a text, or a list, of more than one line? */
export const isLong = (said) => (typeof said === "string" || Array.isArray(said)) && cell(said).length > LONG_CHARS;

/** A table of rows; numbers stand right under their heading. `unitOf(column)`: what stands beside it; `hrefOf(row, column)`: where a cell leads;
    `isStacked`: on a phone a row is one below the other, so that nothing is cut. */
export function Table({ rows, columns, isFinal = () => true, unitOf = () => "", hrefOf = () => null, caption, isStacked = false }) {
  const isNumber = (name) => rows.some((row) => typeof row[name] === "number");
  const label = (name) => [called(name, unitOf(name)), unitOf(name)].filter(Boolean).join(", ");
  const roles = (role) => (isStacked ? { role } : {}); /* what is drawn as blocks is a table no more, unless it says so */
  return html`<div class=${isStacked ? "scroll rows every" : "scroll"} tabindex="0" role="region" aria-label=${caption}><table ...${roles("table")}>
    <thead ...${roles("rowgroup")}><tr ...${roles("row")}>${columns.map((name) => html`<th scope="col" title=${name} class=${isNumber(name) ? "n" : ""} ...${roles("columnheader")}>${called(name, unitOf(name))}${unitOf(name) && html` <small>${unitOf(name)}</small>`}</th>`)}</tr></thead>
    <tbody ...${roles("rowgroup")}>${rows.map((row) => html`<tr data-final=${isFinal(row)} ...${roles("row")}>${columns.map((name) => html`<td data-label=${label(name)} ...${roles("cell")} class=${isNumber(name) ? "n" : isLong(row[name]) ? "w" : ""}>${hrefOf(row, name) ? html`<a href=${hrefOf(row, name)}>${cell(row[name], name)}</a>` : cell(row[name], name)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** Four ways to send a first reading, each one line to copy. */
export function Invitation({ mqtt }) {
  const ways = [
    ["from this terminal", `edgewake send kitchen climate '{"temperature": 21.4, "humidity": 48}'`],
    ["with any MQTT client", `mosquitto_pub -h ${mqtt.host} -p ${mqtt.port} -t ew/v1/kitchen/up/climate -m '{"temperature": 21.4}'`],
    ["from a file", "edgewake replay FILE.csv"],
    ["this machine's own load", "edgewake-agent init && edgewake agent --config agent.toml"],
  ];
  return html`<article class="card invitation" aria-label="How to send"><h2>Send a reading and it appears here</h2>
    <dl>${ways.map(([what, line]) => html`<dt>${what}</dt><dd><code>${line}</code></dd>`)}</dl></article>`;
}
