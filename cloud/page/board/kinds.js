/* What cards of other kinds than charts, tables and maps show: bars, a top list, states, a gauge. */

import { html } from "../vendor/htm/standalone.module.js";
import { age, cell, counted, value, words } from "../live/format.js";
import { barsOf, meanOf, nameOf, newest, scaleOf, topOf } from "./model.js";

const FRESH_MS = 60_000; /* from then on a state says its age */

/** The field of each device, or of each row of a query's newest window, the highest first. */
export function Bars({ model, rows, field, unit, label }) {
  const { shown, more } = barsOf(rows, field, model.keys);
  if (shown.length === 0) return html`<p class="quiet">${words(field)} is no number.</p>`;
  const most = Math.max(...shown.map((one) => Math.abs(one.value)), 1e-12);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><ol class="bars">${shown.map((one) => html`<li key=${one.name}>
    <i style=${{ width: `${(100 * Math.abs(one.value)) / most}%` }}></i><span>${one.name}</span><b>${value(one.value)}${unit && html` <small>${unit}</small>`}</b></li>`)}</ol>
    ${more > 0 && html`<p class="quiet">and ${counted(more, "others")}</p>`}</div>`;
}

/** The most frequent values of a field. */
export function Top({ model, rows, card, label }) {
  const { shown, what } = topOf(model, rows, card);
  if (shown.length === 0) return html`<p class="quiet">${words(card.field)} is neither a text nor a list.</p>`;
  const most = Math.max(...shown.map(([, count]) => count), 1);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><ol class="bars">${shown.map(([text, count]) => html`<li key=${text}>
    <i style=${{ width: `${(100 * count) / most}%` }}></i><span>${text}</span><b>${value(count)}</b></li>`)}</ol></div><p class="quiet">${what}</p>`;
}

const stateOf = (content) => (typeof content === "boolean" ? (content ? "on" : "off") : cell(content));

/** The field as a word: of one device, or row of a query's newest window, large, of several beside their names. */
export function States({ model, rows, field, now }) {
  const known = newest(rows).filter((row) => row[field] !== undefined);
  if (known.length === 0) return html`<p class="quiet">None of them sends ${words(field)}.</p>`;
  const old = (row) => (now - (row.received_at ?? row.t ?? row.window_end) > FRESH_MS ? age(now - (row.received_at ?? row.t ?? row.window_end)) : "");
  if (known.length === 1) return html`<p><b class="figure">${stateOf(known[0][field])}</b> <span class="beside">${old(known[0])}</span></p>`;
  return html`<ul class="states">${known.map((row) => [nameOf(row, model.keys), row]).map(([name, row]) => html`<li key=${name}><span>${name}</span> <b>${stateOf(row[field])}</b> <small>${old(row)}</small></li>`)}</ul>`;
}

const [WIDTH, RADIUS, STROKE] = [120, 50, 12];

/** The mean on a half circle, from the card's least to its most. */
export function Gauge({ model, rows, card, unit }) {
  const mean = meanOf(rows, card.field);
  if (mean === null) return html`<p class="quiet">${words(card.field)} is no number.</p>`;
  const [low, high] = scaleOf(model, rows, card);
  const part = high > low ? Math.max(0, Math.min(1, (mean - low) / (high - low))) : 0.5;
  const length = Math.PI * RADIUS;
  const arc = `M ${WIDTH / 2 - RADIUS} 60 A ${RADIUS} ${RADIUS} 0 0 1 ${WIDTH / 2 + RADIUS} 60`;
  return html`<div class="gauge" role="meter" aria-label=${words(card.field)} aria-valuenow=${mean} aria-valuemin=${low} aria-valuemax=${high}>
    <svg viewBox="0 0 ${WIDTH} 66" aria-hidden="true"><path d=${arc} /><path d=${arc} class="part" style=${{ strokeWidth: STROKE, strokeDasharray: `${part * length} ${length}` }} /></svg>
    <p><b class="figure">${value(mean)}</b>${unit && html` <small>${unit}</small>`}</p><p class="ends"><small>${value(low)}</small><small>${value(high)}</small></p></div>`;
}
