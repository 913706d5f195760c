/* What the queries found: the busiest streets, the tiles over the map, and the newest rows of queries that users added. */

import { bound } from "./tally.js";
import { byId, clock, make, number, say } from "./dom.js";

export const STREETS_MAX = 8; /* rows of the top list */
export const QUERIES_MAX = 6; /* user queries shown */
export const ROWS_MAX = 5; /* newest rows shown of each */
export const COLUMNS_MAX = 8;

/** The first column that holds a list of {item, count}, as a list or as JSON text. */
export function topItems(row) {
  for (const value of Object.values(row)) {
    const list = typeof value === "string" && value.startsWith("[") ? JSON.parse(value) : value;
    if (Array.isArray(list)) return list.map((entry) => ({ item: String(entry.item), count: Number(entry.count) }));
  }
  return [];
}

/** Keep the newest window of a query that has one row per window. */
class Newest {
  take(row) {
    if (!this.row || row.window_end >= this.row.window_end) this.row = row;
    return this.row === row;
  }
}

export class Results {
  constructor() {
    this.streets = new Newest();
    this.distinct = new Newest();
    this.quantiles = new Newest();
    this.own = new Map(); /* query -> newest rows */
  }

  /** Keep a result row; `owned` for a query that is not one of ours. */
  take(row, owned) {
    if (row.query === "top_streets") this.streets.take(row);
    else if (row.query === "vehicles_distinct") this.distinct.take(row);
    else if (row.query === "speed_quantiles") this.quantiles.take(row);
    else if (owned) this.#takeOwn(row);
  }

  render() {
    this.#renderTiles();
    this.#renderStreets();
    this.#renderOwn();
  }

  #takeOwn(row) {
    const rows = this.own.get(row.query) ?? [];
    this.own.set(row.query, [row, ...rows].slice(0, ROWS_MAX));
    bound(this.own, QUERIES_MAX);
    this.ownChanged = true;
  }

  #renderTiles() {
    const quantiles = this.quantiles.row ?? {};
    for (const name of ["p50", "p90", "p99"]) say(byId(`tile-${name}`), number(quantiles[name]));
    say(byId("tile-vehicles"), number(this.distinct.row?.vehicles));
  }

  #renderStreets() {
    const row = this.streets.row;
    if (!row || row === this.drawn) return;
    this.drawn = row;
    const items = topItems(row).slice(0, STREETS_MAX);
    const most = Math.max(1, ...items.map(({ count }) => count));
    byId("streets").replaceChildren(...items.map((entry) => this.#street(entry, most)));
    const isOver = row.window_end <= Date.now();
    say(byId("streets-window"), `readings ${isOver ? "from" : "since"} ${clock(row.window_start)}${isOver ? ` to ${clock(row.window_end)}` : ""}`);
    byId("streets-waiting").hidden = true;
  }

  #street({ item, count }, most) {
    const line = make("li");
    const bar = make("i");
    bar.style.width = `${(100 * count) / most}%`;
    line.append(bar, make("span", "", item), make("b", "", String(count)));
    return line;
  }

  #renderOwn() {
    if (!this.ownChanged) return;
    this.ownChanged = false;
    byId("queries-panel").hidden = false;
    byId("queries").replaceChildren(...[...this.own].map(([name, rows]) => this.#ownTable(name, rows)));
  }

  #ownTable(name, rows) {
    const columns = Object.keys(rows[0]).filter((column) => !["query", "revision", "final", "window_start"].includes(column)).slice(0, COLUMNS_MAX);
    const table = make("table");
    table.append(make("caption", "", name));
    const head = table.createTHead().insertRow();
    head.append(...columns.map((column) => make("th", "", column === "window_end" ? "until" : column)));
    for (const row of rows) {
      const line = table.insertRow();
      for (const column of columns) line.insertCell().textContent = cell(column, row[column]);
    }
    return table;
  }
}

function cell(column, value) {
  if (column === "window_end") return clock(value);
  if (typeof value === "number") return String(Math.round(value * 1000) / 1000);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
