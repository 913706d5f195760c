/* What a card shows, from the models that the Live page has. */

import { html } from "../vendor/htm/standalone.module.js";
import { columnsOf, Table } from "../live/cards.js";
import { Chart, sinceOf } from "../live/detail.js";
import { age, called, clock, sizedUnit, value, words } from "../live/format.js";
import { PlaceMap } from "../live/map.js";
import { Series } from "../live/model.js";
import { Bars, Gauge, States, Top } from "./kinds.js";
import { LinesChart } from "../live/lines.js";
import { chosen, linesOf, nameOf, newest, titleOf } from "./model.js";

const ROWS_MAX = 100; /* rows of a table; more are on the page of the stream or query */

/** What names the series of a card's own: of one device or group, which the models of streams do not keep; else of what came before the feed. */
export const ownKey = ({ source, field, device, group }) => `${source} ${field} ${device ?? ""} ${group ?? ""}`;
/** Has a card a series of its own? */
export const hasOwn = (card) => card.kind === "chart" && Boolean(card.device || card.group);
/** The devices of such a card. */
export const devicesOf = ({ device, group, members }) => (device ? [device] : group ? (members ?? []) : null);

/** `charts`: of each line of a chart, in their order: `past`, {steps, span} of another time than the last minutes, null while it is asked for, and
    `before`, steps of the last minutes, for what the models do not have. */
export function BoardCard({ card, live, now, charts = [] }) {
  if (card.kind === "text") return html`${card.title && html`<h2>${card.title}</h2>`}<p class="board-text" tabindex="0" role="region" aria-label=${card.title || "Text"}>${card.text}</p>`;
  const model = live.streams.get(card.source) ?? live.queries.get(card.source);
  const lines = linesOf(card);
  if (model && lines.length > 1) return html`<${Several} card=${card} model=${model} lines=${lines} live=${live} now=${now} charts=${charts} />`;
  const { past, before = [] } = charts[0] ?? {};
  const rows = model ? rowsOf(model, card) : [];
  const heard = model?.heardAt;
  const unit = card.kind === "chart" && model ? model.unitOf(card.field) : ""; /* a chart's numbers stand on its axis */
  if (card.kind === "chart" && past !== undefined) return html`<h2>${titleOf(card)} <small>${unit}</small></h2><${Past} past=${past} field=${card.field} />`;
  const steps = card.kind === "chart" && rows.length > 0 ? joined(before, stepsOf(model, card, rows, live)) : [];
  const beside = [unit, heard ? age(now - heard) : "", sinceOf(steps, now)].filter(Boolean).join(", ");
  return html`<h2 title=${titleOf(card)}>${titleOf(card)} <small>${beside}</small></h2>
    ${rows.length === 0 ? html`<p class="quiet">${model?.heardAt && (card.device || card.group) ? `Nothing of ${card.device || card.group} in the last minutes.` : "Nothing came in the last minutes."}</p>` : html`<${Content} card=${card} model=${model} rows=${rows} steps=${steps} now=${now} />`}`;
}

/** A chart of several lines: of devices, each in its colour, or of fields. */
function Several({ card, model, lines, live, now, charts }) {
  const past = charts.map((one) => one.past).filter((one) => one !== undefined);
  const fault = past.find((one) => one?.fault)?.fault;
  const stepsAt = (line, i) => (past.length ? past[i].steps : joined(charts[i]?.before ?? [], stepsOf(model, line, rowsOf(model, line), live)));
  const isOfDevices = card.devices?.length > 1;
  const hasFields = card.fields?.length > 0;
  const shown = past.includes(null) || fault ? [] : lines.map((line, i) => ({
    name: isOfDevices && !hasFields ? line.device : `${isOfDevices ? line.device : ""} ${line.field}`,
    label: [isOfDevices && line.device, hasFields && called(line.field, model.unitOf(line.field))].filter(Boolean).join(", "),
    unit: model.unitOf(line.field), steps: stepsAt(line, i),
  }));
  const head = html`<h2 title=${titleOf(card)}>${titleOf(card)} <small>${!past.length && model.heardAt ? age(now - model.heardAt) : ""}</small></h2>`;
  if (fault) return html`${head}<p class="fault" role="alert">${fault}</p>`;
  if (past.includes(null)) return html`${head}<p class="quiet" role="status">loading…</p>`;
  if (shown.every(({ steps }) => steps.length === 0)) return html`${head}<p class="quiet">${past.length ? "Nothing in this time." : "Nothing came in the last minutes."}</p>`;
  return html`${head}<${LinesChart} lines=${shown} title=${titleOf(card)} span=${past[0]?.span} />`;
}

function Past({ past, field }) {
  if (past === null) return html`<p class="quiet" role="status">loading…</p>`;
  if (past.fault) return html`<p class="fault" role="alert">${past.fault}</p>`;
  return past.steps.length ? html`<${Chart} steps=${past.steps} name=${field} span=${past.span} />` : html`<p class="quiet">Nothing in this time.</p>`;
}

/** Steps with those before them. The first that a model has may lack readings that came before it began. */
function joined(before, steps) {
  const first = steps[0]?.[0] ?? Infinity;
  const older = before.filter(([at]) => at <= first);
  return [...older, ...(older.at(-1)?.[0] === first ? steps.slice(1) : steps)];
}

function Content({ card, model, rows, steps, now }) {
  const unit = model.unitOf(card.field);
  if (card.kind === "bars") return html`<${Bars} model=${model} rows=${rows} field=${card.field} unit=${unit} label=${`${titleOf(card)}, bars`} />`;
  if (card.kind === "top") return html`<${Top} model=${model} rows=${rows} card=${card} label=${`${titleOf(card)}, top list`} />`;
  if (card.kind === "state") return html`<${States} model=${model} rows=${rows} field=${card.field} now=${now} />`;
  if (card.kind === "gauge") return html`<${Gauge} model=${model} rows=${rows} card=${card} unit=${unit} />`;
  if (card.kind === "table") {
    const columns = model.devices ? ["device", ...[...model.fields.keys()]] : ["window", ...columnsOf(rows)];
    const shown = rows.slice(0, ROWS_MAX).map((row) => (model.devices ? row : { window: clock(row.window_end), ...row }));
    return html`<${Table} rows=${shown} columns=${columns} unitOf=${(name) => model.unitOf(name)} caption=${titleOf(card)} />`;
  }
  if (card.kind === "map") {
    const places = new Map(newest(rows).filter((row) => typeof row.lat === "number").map((row) => [nameOf(row, model.keys), row]));
    if (places.size === 0) return html`<p class="quiet">It has no fields lat and lon.</p>`;
    return html`<${PlaceMap} stream=${{ name: card.source, devices: places }} />`;
  }
  if (card.kind === "value") return html`<${Figure} rows=${newest(rows)} field=${card.field} unit=${unit} />`;
  return steps.length === 0 ? html`<p class="quiet">${words(card.field)} is no number.</p>` : html`<${Chart} steps=${steps} name=${card.field} />`;
}

function Figure({ rows, field, unit: ownUnit }) {
  const numbers = rows.map((row) => row[field]).filter((one) => typeof one === "number");
  if (numbers.length === 0) return html`<p><b class="figure">${String(rows[0][field] ?? "–")}</b></p>`;
  const mean = numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
  const { unit, by } = sizedUnit(mean, ownUnit);
  const beside = numbers.length > 1 ? `mean of ${numbers.length}, ${value(Math.min(...numbers) / by)} – ${value(Math.max(...numbers) / by)}` : "";
  return html`<p><b class="figure">${value(mean / by)}</b>${unit && html` <small>${unit}</small>`} <span class="beside">${beside}</span></p>`;
}

/** The latest reading of each device, or all rows of a query that are kept, the newest window first; of those that the card is about. */
const rowsOf = (model, card) => chosen(model.devices ? [...model.devices.values()].toReversed() : model.all, card);

function stepsOf(model, card, rows, live) {
  const own = live.own.get(ownKey(card))?.steps ?? [];
  if (model.devices) return hasOwn(card) ? own : joined(own, model.fields.get(card.field)?.state.steps ?? []);
  const points = new Series();
  for (const row of rows.toReversed()) if (typeof row[card.field] === "number") points.take(row[card.field], row.window_end);
  return points.steps;
}
