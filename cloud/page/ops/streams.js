/* Streams: the list, and one of them with its fields and how to read it. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { rate, unitSaid, value, whole } from "../live/format.js";
import { api, enc, get, getAll } from "./api.js";
import { Console } from "./console.js";
import { Erase } from "./erasures.js";
import { Look } from "./gaps.js";
import { Retention } from "./retention.js";
import { Breaks, Do, Facts, Loaded, Rows, useDraft, useLoaded } from "./ui.js";

const recordsOf = ({ partitions }) => partitions.reduce((sum, p) => sum + p.next - p.first, 0);

export function Streams() {
  const loaded = useLoaded(() => getAll("/v1/streams"), "streams");
  return html`<${Loaded} loaded=${loaded} empty="No stream yet. The first reading makes one.">${({ items, total }) => html`<${Rows} caption="Streams" rows=${items} total=${total} finds=${(row) => `${row.name} ${row.description} ${Object.keys(row.fields).join(" ")}`} sorts columns=${[
    ["name", "stream", { view: ({ name }) => html`<a href=${`#/streams/${enc(name)}`}>${name}</a>` }],
    ["readings_per_s", "readings", { number: true, view: (row) => (row.readings_per_s ? rate(row.readings_per_s) : "–") }],
    ["kept", "records kept", { number: true, by: recordsOf, view: (row) => whole(recordsOf(row)) }],
    ["fields", "fields", { wraps: true, by: () => null, view: ({ fields }) => Object.keys(fields).join(", ") }],
    ["description", "description", { view: ({ description }) => description || "–" }],
  ]} />`}<//>`;
}

const LOOK_MS = 10_000; /* between two looks at what is summed up each minute */

export function Stream({ name, params }) {
  const loaded = useLoaded(() => get(`/v1/streams/${enc(name)}`), `stream ${name}`);
  return html`<nav class="crumbs"><a href="#/streams">Streams</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(stream) => html`
      <${Facts} of=${[
        ["readings", stream.readings_per_s ? rate(stream.readings_per_s) : "none now"],
        ["records", stream.records_per_s ? rate(stream.records_per_s) : "none now"],
        ["topic", html`<${Breaks} text=${stream.topic} />`],
        ["partitions", stream.partitions.length],
        ["description", stream.description || null],
        ["devices", html`<a href=${`#/devices?stream=${enc(name)}`}>that send it</a>`],
        ["read by", html`<a href=${`#/clients?stream=${enc(name)}`}>clients</a>`],
        ["see it", html`<a href=${`#/boards?source=${enc(name)}`}>put on a board</a>`],
        ["be told", html`<a href=${`#/alerts?new=1&stream=${enc(name)}`}>alert on this</a>`],
        ["ask", html`<a href=${`#/ask?sql=${enc(`SELECT * FROM "${name}" ORDER BY t DESC LIMIT 20`)}`}>its newest readings by SQL</a>`],
      ]} />
      <${Fields} stream=${stream} />
      <${Decide} key=${`decided ${name}`} stream=${stream} again=${loaded.again} />
      <${Retention} key=${`kept ${name}`} stream=${name} />
      <${Look} streams=${[name]} />
      <${Console} key=${name} stream=${stream} params=${params} />
      <${Erase} name=${name} withQueries what="All its readings, what was computed and summed up of them, and its files in the lake. What devices send later begins a new stream."
        ask=${(isWith) => `/v1/streams/${enc(name)}${isWith ? "?queries=true" : ""}`} />`}<//>`;
}

const TYPES = ["number", "string", "boolean"];

/** What an operator decides: what a stream is, and the type and unit of a field. */
function Decide({ stream, again }) {
  const [description, setDescription, isDescribed] = useDraft(stream.description);
  const [field, setField] = useState("");
  const info = stream.fields[field];
  const keep = (change) => async () => {
    await api("PATCH", `/v1/streams/${enc(stream.name)}`, change);
    again();
    return "kept";
  };
  return html`<details class="card"><summary>Change the description, types and units</summary>
    <p class="actions"><label>Description <input value=${description} maxlength="500" size="40" onInput=${({ target }) => setDescription(target.value)} /></label>
      <${Do} act=${keep({ description })} disabled=${!isDescribed} label="Keep the description">Keep<//></p>
    <p class="actions"><label>Field <select aria-label="Field" value=${field} onChange=${({ target }) => setField(target.value)}><option value="">choose</option>${Object.keys(stream.fields).map((one) => html`<option value=${one}>${one}</option>`)}</select></label></p>
    ${info && html`<${Field} key=${field} name=${field} info=${info} keep=${keep} />`}
    <p class="quiet">Values of another type than the one kept here stand beside it, and are refused for good where an agent sends them. Units are symbols of UCUM: <code>Cel</code>, <code>%</code>, <code>km/h</code>.</p></details>`;
}

function Field({ name, info, keep }) {
  const [type, setType, isType] = useDraft(info.type);
  const [unit, setUnit] = useDraft(info.unit);
  const question = isType && type !== info.type ? `Make ${name} a ${type}? Values of another type stand beside it from then on, and are refused for good where an agent sends them.` : "";
  return html`<p class="actions"><label>Type <select aria-label="Type" value=${type} onChange=${({ target }) => setType(target.value)}>${TYPES.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
    <label>Unit <input class="short" value=${unit} maxlength="32" spellcheck=${false} onInput=${({ target }) => setUnit(target.value.trim())} /></label>
    <${Do} act=${keep({ fields: { [name]: type === info.type ? { unit } : { type, unit } } })} confirm=${question} label=${`Keep ${name}`}>Keep<//></p>`;
}

/** Fields with what they held lately. An estimate has its bounds in its title. */
function Fields({ stream }) {
  const loaded = useLoaded(() => get(`/v1/streams/${enc(stream.name)}/summary?minutes=15`), `summary ${stream.name}`, LOOK_MS);
  const rows = Object.entries(stream.fields).map(([name, info]) => ({ name, ...info, held: loaded.data?.fields[name] }));
  const number = (of) => ({ number: true, view: ({ held }) => (held ? value(of(held)) : "–") });
  return html`<${Rows} caption="Fields" rows=${rows} columns=${[
      ["name", "field", { view: (row) => html`<a href=${`#/summaries/${enc(`${stream.name}.${row.name}`)}`} title="what it held">${row.name}</a>` }],
      ["type"], ["unit", "unit", { view: ({ unit }) => unitSaid(unit) || "–" }],
      ["least", "least", number((held) => held.figures.min)], ["mean", "mean", number((held) => held.figures.mean)],
      ["p99", "99 % are at most", number((held) => held.quantiles.find((one) => one.rank === 0.99)?.value)],
      ["distinct", "different", { number: true, view: ({ held }) => html`<${Estimate} of=${held?.distinct} />` }],
    ]} />
    <p class="quiet">${loaded.error ? html`<span role="alert">${loaded.error.message}${loaded.at > 0 && "; what you see is of before"}</span>`
      : Object.keys(loaded.data?.fields ?? {}).length || !loaded.data ? "Figures of the last 15 minutes, of all devices, summed up each minute." : "Nothing is summed up of the last 15 minutes (yet): a minute is a minute after its first reading."}</p>`;
}

const Estimate = ({ of }) => (of ? html`<span title=${of.low === of.high ? "exactly" : `between ${whole(of.low)} and ${whole(of.high)}`}>${of.low === of.high ? "" : "≈ "}${whole(of.value)}</span>` : "–");
