/* Summaries: what a field of a stream held over a time, and the same of another time beside it. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { Chart } from "../live/detail.js";
import { moment, value, words } from "../live/format.js";
import { enc, get } from "./api.js";
import { Facts, Loaded, Rows, useLoaded } from "./ui.js";

const SPANS = [["1h", "1 h", 3_600_000, "minute"], ["24h", "24 h", 86_400_000, "hour"], ["7d", "7 days", 7 * 86_400_000, "hour"], ["30d", "30 days", 30 * 86_400_000, "day"]];
const RANKS = [0.01, 0.25, 0.5, 0.75, 0.99];

export function Summaries({ params }) {
  const loaded = useLoaded(() => get("/v1/summaries?limit=500"), "series");
  const [find, setFind] = useState("");
  return html`<p class="actions"><label>Find <input type="search" placeholder="stream or field" value=${find} onInput=${({ target }) => setFind(target.value)} /></label></p>
    <${Loaded} loaded=${loaded} empty="Nothing is summed up yet: the first minute of a stream is there a minute after its first reading.">${(series) => html`
      <${Rows} caption="What is summed up" rows=${series.filter((one) => `${one.stream} ${one.field} ${one.devices}`.includes(find.trim())).map((one) => ({ id: `${one.stream}|${one.field}|${one.devices}`, ...one }))} columns=${[
        ["stream", "stream", { view: (row) => html`<a href=${`#/streams/${enc(row.stream)}`}>${row.stream}</a>` }],
        ["field", "field", { view: (row) => html`<a href=${`#/summaries/${enc(`${row.stream}.${row.field}`)}?devices=${enc(row.devices)}`}>${words(row.field)}</a>` }],
        ["devices", "of", { view: ({ devices }) => devices || "all devices" }],
      ]} />`}<//>`;
}

/** `name`: STREAM.FIELD. */
export function SummaryPage({ name, params }) {
  const [stream, field] = name.split(".");
  const [key, , span, step] = SPANS.find(([one]) => one === params.get("span")) ?? SPANS[0];
  const devices = params.get("devices") ?? "";
  const before = params.get("beside") === "1";
  const link = (more) => `#/summaries/${enc(name)}?${new URLSearchParams({ span: key, devices, ...(before && { beside: "1" }), ...more })}`;
  return html`<nav class="crumbs"><a href="#/summaries">Summaries</a> › ${stream} › ${field}${devices && ` › ${devices}`}</nav>
    <p class="chips" role="group" aria-label="Time">${SPANS.map(([one, title]) => html`<a href=${link({ span: one })} aria-current=${one === key ? "true" : "false"}>${title}</a>`)}
      <a href=${link({ beside: before ? "" : "1" })} aria-current=${before ? "true" : "false"}>beside the time before</a></p>
    <div class=${before ? "halves" : ""}><${Side} stream=${stream} field=${field} devices=${devices} span=${span} step=${step} back=${0} />
      ${before && html`<${Side} stream=${stream} field=${field} devices=${devices} span=${span} step=${step} back=${span} />`}</div>`;
}

function Side({ stream, field, devices, span, step, back }) {
  const path = `/v1/summaries/${enc(stream)}/${enc(field)}`;
  const loaded = useLoaded(async () => {
    const to = Date.now() - back;
    const time = { from: to - span, to, devices };
    const ranks = RANKS.map((rank) => ["quantile", rank]);
    const [whole, steps] = await Promise.all([
      get(`${path}?${new URLSearchParams([...Object.entries(time), ["distinct", "true"], ["frequent", "10"], ...ranks])}`),
      get(`${path}?${new URLSearchParams({ ...time, step })}`),
    ]);
    return { whole: whole.rows[0], steps: steps.rows, from: time.from, to };
  }, `summary ${path} ${devices} ${span} ${back}`, 30_000);
  return html`<div class="stack"><${Loaded} loaded=${loaded}>${({ whole, steps, from, to }) => html`
    <p class="quiet">${moment(from)} to ${moment(to)}</p>
    <${Facts} of=${[
      ["readings", whole.figures.readings == null ? null : value(whole.figures.readings)],
      ["mean", value(whole.figures.mean)],
      ["least", value(whole.figures.min)],
      ["most", value(whole.figures.max)],
      ["different values", estimate(whole.distinct)],
    ]} />
    ${steps.some((one) => typeof one.figures.mean === "number") && html`<section class="card"><h2>Mean, least and most of each ${step}</h2>
      <${Chart} span=${[from, to]} steps=${steps.map((one) => [one.start, one.figures.mean, one.figures.min, one.figures.max])} name=${field} /></section>`}
    ${whole.quantiles.length > 0 && html`<${Rows} caption="Quantiles" rows=${whole.quantiles.map((one) => ({ id: one.rank, ...one }))} columns=${[
      ["rank", "of the readings", { view: ({ rank }) => `${Math.round(rank * 100)} %` }],
      ["value", "are at most", { number: true, view: (row) => value(row.value) }],
      ["low", "surely between", { number: true, view: (row) => `${value(row.low)} – ${value(row.high)}` }],
    ]} />`}
    ${whole.frequent.length > 0 && html`<${Rows} caption="Most frequent values" rows=${whole.frequent.map((one) => ({ id: one.text, ...one }))} columns=${[
      ["text", "most frequent"], ["value", "readings", { number: true, view: estimate }],
    ]} />`}`}<//></div>`;
}

const estimate = (one) => (one == null ? null : one.low === one.high ? value(one.value) : `${value(one.value)} (${value(one.low)} – ${value(one.high)})`);
