/* What a card shows, from the models that the Live page has. */

import { html } from "../vendor/htm/standalone.module.js";
import { columnsOf, Table } from "../live/cards.js";
import { Chart } from "../live/detail.js";
import { age, clock, value, words } from "../live/format.js";
import { PlaceMap } from "../live/map.js";
import { Series } from "../live/model.js";
import { titleOf } from "./model.js";

const ROWS_MAX = 100; /* rows of a table; more are on the page of the stream or query */

/** The series of one device, which the models of streams do not keep. */
export const ownKey = ({ source, field, device }) => `${source} ${field} ${device}`;

export function BoardCard({ card, live, now }) {
  if (card.kind === "text") return html`${card.title && html`<h2>${card.title}</h2>`}<p class="board-text">${card.text}</p>`;
  const model = live.streams.get(card.source) ?? live.queries.get(card.source);
  const rows = model ? rowsOf(model, card.device) : [];
  const heard = model?.heardAt;
  return html`<h2>${titleOf(card)} <small>${heard ? age(now - heard) : ""}</small></h2>
    ${rows.length === 0 ? html`<p class="quiet">${model?.heardAt ? `Nothing of ${card.device} in the last minutes.` : "Nothing came in the last minutes."}</p>` : html`<${Content} card=${card} model=${model} rows=${rows} live=${live} />`}`;
}

function Content({ card, model, rows, live }) {
  if (card.kind === "table") {
    const columns = model.devices ? ["device", ...[...model.fields.keys()]] : ["window", ...columnsOf(rows)];
    const shown = rows.slice(0, ROWS_MAX).map((row) => (model.devices ? row : { window: clock(row.window_end), ...row }));
    return html`<${Table} rows=${shown} columns=${columns} caption=${titleOf(card)} />`;
  }
  if (card.kind === "map") {
    const places = new Map(rows.filter((row) => typeof row.lat === "number").map((row) => [row.device, row]));
    if (places.size === 0) return html`<p class="quiet">It has no fields lat and lon.</p>`;
    return html`<${PlaceMap} stream=${{ name: card.source, devices: places }} />`;
  }
  const numbers = rows.map((row) => row[card.field]).filter((one) => typeof one === "number");
  if (card.kind === "value") return html`<${Figure} rows=${rows} numbers=${numbers} field=${card.field} />`;
  const steps = stepsOf(model, card, rows, live);
  return steps.length === 0 ? html`<p class="quiet">${words(card.field)} is no number.</p>` : html`<${Chart} steps=${steps} name=${card.field} />`;
}

function Figure({ rows, numbers, field }) {
  if (numbers.length === 0) return html`<p><b class="figure">${String(rows[0][field] ?? "–")}</b></p>`;
  const mean = numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
  const beside = numbers.length > 1 ? `mean of ${numbers.length}, ${value(Math.min(...numbers))} – ${value(Math.max(...numbers))}` : "";
  return html`<p><b class="figure">${value(mean)}</b> <span class="beside">${beside}</span></p>`;
}

/** The latest reading of each device, or the rows of a query's newest windows; of one device only its own. */
function rowsOf(model, device) {
  const all = model.devices ? [...model.devices.values()].toReversed() : model.rows;
  return device ? all.filter((row) => row.device === device) : all;
}

function stepsOf(model, card, rows, live) {
  if (model.devices && card.device) return live.own.get(ownKey(card))?.steps ?? [];
  if (model.devices) return model.fields.get(card.field)?.state.steps ?? [];
  const points = new Series();
  for (const row of rows.toReversed()) if (typeof row[card.field] === "number") points.take(row[card.field], row.window_end);
  return points.steps;
}
