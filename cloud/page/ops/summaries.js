/* Summaries: what a field of a stream held over a time, and the same of another time beside it. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { Chart } from "../live/detail.js";
import { moment, unitSaid, value, whole as wholeNumber, words } from "../live/format.js";
import { enc, get, getAll } from "./api.js";
import { CURVE_RANKS, QuantileCurve } from "./quantile_curve.js";
import { isTime } from "./range.js";
import { Facts, kept, linkTo, Loaded, More, Rows, useLoaded } from "./ui.js";

const SPANS = [["1h", "1 h", 3_600_000, "minute"], ["24h", "24 h", 86_400_000, "hour"], ["7d", "7 days", 7 * 86_400_000, "hour"], ["30d", "30 days", 30 * 86_400_000, "day"]];
const RANKS = [0.01, 0.25, 0.5, 0.75, 0.99]; /* of the table; each is one of the curve's */

const SERIES_SHOWN = 500; /* of one page, as the server allows */
const idOf = ({ stream, field, devices }) => `${stream}|${field}|${devices}`;

export function Summaries({ params }) {
  const path = `/v1/summaries?${new URLSearchParams({ limit: SERIES_SHOWN, ...kept(params, ["after"]) })}`;
  const loaded = useLoaded(() => get(path), path);
  const [find, setFind] = useState("");
  return html`<p class="actions"><label>Find <input type="search" placeholder="stream or field" value=${find} onInput=${({ target }) => setFind(target.value)} /></label></p>
    <${Loaded} loaded=${loaded} empty="Nothing is summed up yet: the first minute of a stream is there a minute after its first reading.">${(series) => html`
      <${Rows} caption="What is summed up" rows=${series.filter((one) => `${one.stream} ${one.field} ${one.devices}`.includes(find.trim())).map((one) => ({ id: idOf(one), ...one }))} columns=${[
        ["stream", "stream", { view: (row) => html`<a href=${`#/streams/${enc(row.stream)}`}>${row.stream}</a>` }],
        ["field", "field", { view: (row) => html`<a href=${`#/summaries/${enc(`${row.stream}.${row.field}`)}?devices=${enc(row.devices)}`}>${words(row.field)}</a>` }],
        ["devices", "of", { view: ({ devices }) => devices || "all devices" }],
      ]} /><${More} path="#/summaries" params=${params} next=${series.length === SERIES_SHOWN ? idOf(series.at(-1)) : null}>More: those behind these<//>`}<//>`;
}

const BESIDE = [["", "alone"], ["before", "the time before"], ["day", "a day before"], ["week", "a week before"], ["month", "30 days before"]];
const DAYS = { day: 1, week: 7, month: 30 };

/** `name`: STREAM.FIELD. `params`: span, devices, beside (of BESIDE, or when the other time ends, ms), value. */
export function SummaryPage({ name, params }) {
  const [stream, field] = name.split(".");
  const [key, , span, step] = SPANS.find(([one]) => one === params.get("span")) ?? SPANS[0];
  const devices = params.get("devices") ?? "";
  const beside = params.get("beside") ?? "";
  const text = params.get("value") ?? "";
  const [now] = useState(() => Date.now());
  const end = isTime(Number(beside)) ? Number(beside) : null;
  const other = end === null ? backOf(beside, span) : now - end;
  const link = (more) => linkTo(`#/summaries/${enc(name)}`, params, { span: key, ...more });
  const { data: streams } = useLoaded(() => getAll("/v1/streams"), "units", 60_000);
  const unit = unitSaid(streams?.items.find((one) => one.name === stream)?.fields[field]?.unit ?? "");
  const asked = { path: `/v1/summaries/${enc(stream)}/${enc(field)}`, field, unit, devices, span, step, text };
  const count = (event) => {
    event.preventDefault();
    location.hash = link({ value: new FormData(event.target).get("value") });
  };
  return html`<nav class="crumbs"><a href="#/summaries">Summaries</a> › ${stream} › ${field}${devices && ` › ${devices}`}</nav>
    <p class="chips" role="group" aria-label="Time"><small>the last</small>${SPANS.map(([one, title]) => html`<a href=${link({ span: one })} aria-current=${one === key ? "true" : "false"}>${title}</a>`)}</p>
    <p class="chips" role="group" aria-label="Beside it"><small>beside it</small>${BESIDE.map(([one, title]) => html`<a href=${link({ beside: one })} aria-current=${one === beside ? "true" : "false"}>${title}</a>`)}
      <label>the time to <input type="datetime-local" value=${end === null ? "" : localInput(end)} onChange=${({ target }) => target.value && (location.hash = link({ beside: Date.parse(target.value) }))} /></label></p>
    <form class="actions" aria-label="How often a value occurred" onSubmit=${count}><label>How often was it <input name="value" defaultValue=${text} placeholder="a value, as it is written" autocomplete="off" spellcheck=${false} /></label><button type="submit">Count</button></form>
    ${other > 0 && html`<${InBoth} ...${asked} other=${other} end=${end} />`}
    <div class=${other > 0 ? "halves" : ""}><${Side} ...${asked} back=${0} />${other > 0 && html`<${Side} ...${asked} back=${other} end=${end} />`}</div>`;
}

/** How long before the time beside it ends; what says none is 0. */
const backOf = (beside, span) => (beside === "before" ? span : Object.hasOwn(DAYS, beside) ? DAYS[beside] * 86_400_000 : 0);

/** Local time as the browser's field of date and time has it. */
function localInput(ms) {
  const at = new Date(ms);
  return new Date(ms - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** What two times have in common: different values of the one, the other, and both. `end`: when the other one ends; null: always as long ago. */
function InBoth({ path, devices, span, other, end }) {
  const loaded = useLoaded(() => {
    const to = Date.now();
    const withTo = end ?? to - other;
    return get(`${path}/compare?${new URLSearchParams({ from: to - span, to, devices, with_from: withTo - span, with_to: withTo })}`);
  }, `both ${path} ${devices} ${span} ${other}`, 30_000);
  const { data } = loaded;
  if (!data?.union) return "";
  return html`<p class="quiet">Different values: ${estimate(data.union)} in either time, ${estimate(data.intersection)} in both, ${estimate(data.difference)} only in the later one.</p>`;
}

function Side({ path, field, unit, devices, span, step, text, back, end = null }) {
  const loaded = useLoaded(async () => {
    const to = end ?? Date.now() - back; /* a time that was chosen stays, however long the page is open */
    const time = { from: to - span, to, devices };
    const ranks = CURVE_RANKS.map((rank) => ["quantile", rank]);
    const counted = text ? [["count_of", text], ["contains", text]] : [];
    const [whole, steps] = await Promise.all([
      get(`${path}?${new URLSearchParams([...Object.entries(time), ["distinct", "true"], ["frequent", "10"], ...ranks, ...counted])}`),
      get(`${path}?${new URLSearchParams({ ...time, step })}`),
    ]);
    return { whole: whole.rows[0], steps: steps.rows, from: time.from, to };
  }, `summary ${path} ${devices} ${span} ${back} ${text}`, 30_000);
  const of = back ? " of the time beside it" : "";
  const measured = (number) => (number == null ? null : html`${value(number)}${unit && html`<small>\u2009${unit}</small>`}`);
  return html`<section class="stack" aria-label=${back ? "The time beside it" : "The time"}><${Loaded} loaded=${loaded}>${({ whole, steps, from, to }) => html`
    <p class="quiet">${moment(from)} to ${moment(to)}</p>
    ${text && html`<${Counted} text=${text} row=${whole} />`}
    <${Facts} of=${[
      ["readings", whole.figures.readings == null ? null : wholeNumber(whole.figures.readings)],
      ["mean", measured(whole.figures.mean)],
      ["least", measured(whole.figures.min)],
      ["most", measured(whole.figures.max)],
      ["different values", estimate(whole.distinct)],
    ]} />
    ${steps.some((one) => typeof one.figures.mean === "number") && html`<section class="card"><h2>Mean, least and most of each ${step} <small>${unit}</small></h2>
      <${Chart} span=${[from, to]} steps=${steps.map((one) => [one.start, one.figures.mean, one.figures.min, one.figures.max])} name=${field} /></section>`}
    ${whole.quantiles.length > 0 && html`<${QuantileCurve} quantiles=${whole.quantiles} name=${field} of=${of} />
      <${Rows} caption=${`Quantiles${of}`} rows=${whole.quantiles.filter(({ rank }) => RANKS.includes(rank)).map((one) => ({ id: one.rank, ...one }))} columns=${[
      ["rank", "of the readings", { view: ({ rank }) => `${Math.round(rank * 100)} %` }],
      ["value", "are at most", { number: true, view: (row) => measured(row.value) }],
      ["low", "surely between", { number: true, view: (row) => `${value(row.low)} – ${value(row.high)}` }],
    ]} />`}
    ${whole.frequent.length > 0 && html`<${Rows} caption=${`Most frequent values${of}`} rows=${whole.frequent.map((one) => ({ id: one.text, ...one }))} columns=${[
      ["text", "most frequent"], ["value", "readings", { number: true, view: estimate }],
    ]} />`}`}<//></section>`;
}

/** How often one value occurred, and whether it did at all. */
function Counted({ text, row }) {
  const [often] = row.occurrences;
  const [there] = row.contains;
  const isNever = there && there.value === false;
  if (!often && !there) return html`<p class="card quiet">Nothing is kept that tells how often ${text} occurred: this field has no such sketch in this time.</p>`;
  return html`<p class="card lead" role="status"><b>${text}</b> ${isNever ? "did not occur, for certain." : often ? html`occurred ${estimate(often)} times${row.figures.readings ? html` <small>of ${wholeNumber(row.figures.readings)} readings</small>` : ""}.` : "occurred, most likely."}</p>`;
}

const estimate = (one) => (one == null ? null : one.low === one.high ? value(one.value) : `${value(one.value)} (${value(one.low)} – ${value(one.high)})`);
