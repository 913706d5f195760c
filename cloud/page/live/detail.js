/* One stream or one query, larger: a chart for each number, the latest of each device, the newest events. */

import { html, useRef } from "../vendor/htm/standalone.module.js";
import { themeColour } from "../dom.js";
import { age, called, clock, counted, instant, moment, words } from "./format.js";
import { columnsOf, Table } from "./cards.js";
import { PlaceMap } from "./map.js";
import { KEPT_MS } from "./model.js";
import { below, beside, usePlot } from "./plot.js";

export const CHART_HEIGHT = 160;
const DAY_MS = 86_400_000;
const DEVICES_SHOWN = 100; /* rows of the table of devices */

export function StreamPage({ stream, now }) {
  if (!stream) return html`<p class="card quiet">There is no such stream (any more). <a href="#/">All streams</a></p>`;
  const numbers = stream.shown.filter(([, field]) => field.kind === "number");
  const devices = [...stream.devices.values()].reverse().slice(0, DEVICES_SHOWN);
  const columns = ["device", ...[...stream.fields.keys()]];
  return html`<nav class="crumbs"><a href="#/">Live</a> › ${stream.name}</nav>
    ${stream.hasPlace && html`<section class="card tall"><${PlaceMap} stream=${stream} /></section>`}
    <div class="charts">${numbers.map(([name, field]) => html`<section class="card"><h2>${called(name, stream.unitOf(name))} <small>${[stream.unitOf(name), sinceOf(field.state.steps, now)].filter(Boolean).join(", ")}</small></h2><${Chart} steps=${field.state.steps} name=${name} /></section>`)}</div>
    <section class="card"><h2>Latest of each device <small>${stream.devices.size}</small></h2>
      <${Table} rows=${devices.map((row) => ({ ...row, heard: age(now - (row.received_at ?? row.t)) }))} columns=${[...columns, "heard"]} unitOf=${(name) => stream.unitOf(name)} hrefOf=${(row, name) => name === "device" && deviceHref(row.device)} caption="Latest of each device" /></section>
    <section class="card"><h2>Newest events</h2><ol class="events">${stream.newest.slice(0, 20).map((event) => html`<li>
      <time title=${moment(event.t)}>${instant(event.t)}</time> <b><a href=${deviceHref(event.device)}>${event.device}</a></b> <code>${fieldsOf(event)}</code></li>`)}</ol></section>`;
}

export function QueryPage({ query }) {
  if (!query) return html`<p class="card quiet">There is no such query (any more). <a href="#/">All queries</a></p>`;
  const rows = query.rows.map((row) => ({ window: clock(row.window_end), ...row }));
  return html`<nav class="crumbs"><a href="#/">Live</a> › ${query.name}</nav>
    <section class="card"><h2>Newest windows</h2>${rows.length ? html`<${Table} rows=${rows} columns=${["window", ...columnsOf(query.rows), "revision"]}
      isFinal=${(row) => query.isFinal(row)} unitOf=${(name) => query.unitOf(name)} caption=${query.name} />` : html`<p class="quiet">No window yet.</p>`}</section>`;
}

export const deviceHref = (device) => `#/devices/${encodeURIComponent(device)}`;

function fieldsOf({ stream, device, epoch, seq, t, received_at, ...fields }) {
  return JSON.stringify(fields);
}

/** Since when a chart of the last minutes has points, where that is not all of its time; the line before it was not read, or nothing came. */
export function sinceOf(steps, now) {
  const first = steps[0]?.[0];
  return first !== undefined && first > now - KEPT_MS + SHORT_MS ? `since ${clock(first)}` : "";
}

const SHORT_MS = 60_000; /* a line that lacks less than it is whole */
const PAUSES = 4; /* usual pauses between two points, after which nothing is drawn between them */

/** Points with an empty one in each hole, so that no line says what was not measured. */
export function withGaps(steps) {
  const pauses = steps.slice(1).map((step, i) => step[0] - steps[i][0]).sort((a, b) => a - b);
  const hole = PAUSES * pauses[Math.floor(pauses.length / 2)];
  return steps.flatMap((step, i) => (i > 0 && step[0] - steps[i - 1][0] > hole ? [[steps[i - 1][0] + 1, null, null, null], step] : [step]));
}

const HATCH_PX = 6; /* between two lines of a hatch */
const GAP_PX_MIN = 4; /* what is narrower would not be seen */

/** Hatch what is missing. `gaps`: [from, to] in ms; without an end it is open until now. */
function hatch({ ctx, bbox, valToPos }, gaps) {
  const place = (ms) => Math.min(Math.max(valToPos(ms / 1000, "x", true), bbox.left), bbox.left + bbox.width);
  ctx.save();
  ctx.strokeStyle = themeColour("--warn");
  ctx.lineWidth = devicePixelRatio;
  for (const [from, to] of gaps) {
    const left = place(from);
    const width = Math.max(place(to ?? Date.now()) - left, GAP_PX_MIN);
    if (left >= bbox.left + bbox.width || left + width <= bbox.left) continue;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, bbox.top, width, bbox.height);
    ctx.clip();
    ctx.beginPath();
    for (let x = left - bbox.height; x < left + width; x += HATCH_PX * devicePixelRatio) {
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x + bbox.height, bbox.top);
    }
    ctx.stroke();
    ctx.restore();
  }
  ctx.restore();
}

const TICK_PX = 5; /* half of a mark's width, and its height */

/** Mark times on the axis of a chart: what was said of them was corrected later. */
function mark({ ctx, bbox, valToPos }, times) {
  const size = TICK_PX * devicePixelRatio;
  const bottom = bbox.top + bbox.height;
  ctx.save();
  ctx.fillStyle = themeColour("--warn");
  for (const ms of times) {
    const at = valToPos(ms / 1000, "x", true);
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(at - size, bottom);
    ctx.lineTo(at + size, bottom);
    ctx.lineTo(at, bottom - 1.6 * size);
    ctx.fill();
  }
  ctx.restore();
}

/** How the times of an axis are written. `span`: [from, to] in ms; without it the last minutes. */
export function hoursOf(span) {
  const format = isLong(span) ? { month: "short", day: "numeric", hour: "2-digit", hour12: false } : { hour: "2-digit", minute: "2-digit", hour12: false };
  return (_, at) => at.map((s) => new Date(s * 1000).toLocaleString([], format));
}

const isLong = (span) => span && span[1] - span[0] > DAY_MS;

/** From when to when an axis of time goes, in s. */
export const scaleOf = (span) => () => (span ? [span[0] / 1000, span[1] / 1000] : [(Date.now() - KEPT_MS) / 1000, Date.now() / 1000]);

/** A number over time: the mean as a line, least and most as a band. `steps`: [time, mean, least, most]; `span`: [from, to] in ms, without it the last minutes; `gaps`: what is missing, [from, to] each; `corrected`: times of which something else was said before. */
export function Chart({ steps, name, span, gaps = [], corrected = [] }) {
  const marks = useRef(null);
  marks.current = { gaps, corrected };
  const shown = withGaps(steps);
  const edge = { stroke: "transparent", points: { show: false } };
  const element = usePlot({
    data: [shown.map((s) => s[0] / 1000), shown.map((s) => s[3]), shown.map((s) => s[2]), shown.map((s) => s[1])],
    key: `${name} ${span ?? ""}`,
    height: (box) => box.clientHeight || CHART_HEIGHT,
    options: (axis) => ({
      axes: [below(axis, hoursOf(span), isLong(span) ? 90 : 60), beside(axis)],
      scales: { x: { time: true, range: scaleOf(span) } },
      series: [{}, edge, edge, { stroke: themeColour("--cpu"), width: 2, label: name }],
      hooks: { drawAxes: [(drawn) => hatch(drawn, marks.current.gaps)], draw: [(drawn) => mark(drawn, marks.current.corrected)] },
      bands: [{ series: [1, 2], fill: themeColour("--band") }],
    }),
  });
  const said = [gaps.length && `, ${counted(gaps.length, "gaps")}`, corrected.length && `, ${corrected.length} corrected`].filter(Boolean).join("");
  return html`<div class="chart" ref=${element} role="img" aria-label=${`${words(name)} over time${said}`}></div>`;
}
