/* What the queries found: the busiest streets, the tiles over the map, and the newest windows of queries that users added. */

import { bound } from "./tally.js";
import { byId, clock, make, number, say } from "./dom.js";

export const STREETS_MAX = 8; /* rows of the top list */
export const QUERIES_MAX = 6; /* user queries shown */
export const ROWS_MAX = 8; /* newest windows and groups shown of each */
export const ROWS_KEPT = 64; /* of each query, so that a correction finds its row */
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

/** The newest revision of each (window, group) of one query. `keys`: its group columns; without them every text column is taken for one. */
export class Windows {
  /** `kept`: rows at most. */
  constructor(kept = ROWS_KEPT) {
    this.kept = kept;
    this.rows = new Map(); /* window and group as text -> row */
    this.keys = null;
  }

  /** Groups by these columns from now on; null: they are not known. The rows that are here get new ids, so that none is shown twice. */
  groupBy(keys) {
    if (JSON.stringify(keys) === JSON.stringify(this.keys)) return;
    this.keys = keys;
    const rows = [...this.rows.values()];
    this.rows.clear();
    for (const row of rows) this.take(row);
  }

  take(row) {
    const keys = this.keys ?? Object.keys(row).filter((name) => name !== "query" && typeof row[name] === "string");
    const id = JSON.stringify([row.window_start, row.window_end, ...keys.map((name) => row[name])]);
    const known = this.rows.get(id);
    if (known && known.revision > row.revision) return;
    this.rows.delete(id); /* so that the order is that of the newest word */
    this.rows.set(id, row);
    bound(this.rows, this.kept);
  }

  /** All that are not withdrawn, the newest window first. */
  get all() {
    return [...this.rows.values()].filter((row) => !row.withdrawn).sort((a, b) => b.window_end - a.window_end);
  }

  /** As many of them as a tile shows. */
  get newest() {
    return this.all.slice(0, ROWS_MAX);
  }
}

export class Results {
  /** `finals`: query -> event time in ms up to which its windows are final. */
  constructor(finals) {
    this.finals = finals;
    this.streets = new Newest();
    this.distinct = new Newest();
    this.quantiles = new Newest();
    this.own = new Map(); /* query -> Windows */
  }

  /** Keep a result row; `owned` for a query that is not one of ours. */
  take(row, owned) {
    if (row.query === "top_streets") this.streets.take(row);
    else if (row.query === "vehicles_distinct") this.distinct.take(row);
    else if (row.query === "speed_quantiles") this.quantiles.take(row);
    else if (owned) this.#takeOwn(row);
  }

  /** Show these queries of users and no others. `keysOf`: query -> its group columns, as far as they are known. */
  show(queries, keysOf) {
    for (const name of this.own.keys()) {
      if (queries.includes(name)) continue;
      this.own.delete(name);
      this.ownChanged = true;
    }
    this.keysOf = keysOf;
    for (const [name, windows] of this.own) windows.groupBy(keysOf[name] ?? null);
  }

  /** This query was made anew: what the one before it found is not its own, nor is that final. */
  forget(query) {
    this.own.delete(query);
    for (const newest of [this.streets, this.distinct, this.quantiles]) if (newest.row?.query === query) newest.row = undefined;
    delete this.finals[query];
    this.ownChanged = true;
  }

  /** A watermark came: rows may have become final. */
  finalChanged() {
    this.ownChanged = true;
  }

  render() {
    this.#renderTiles();
    this.#renderStreets();
    this.#renderOwn();
  }

  #takeOwn(row) {
    if (!this.own.has(row.query)) {
      this.own.set(row.query, new Windows());
      this.own.get(row.query).groupBy(this.keysOf?.[row.query] ?? null);
      bound(this.own, QUERIES_MAX);
    }
    this.own.get(row.query)?.take(row);
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
    if (byId("queries-panel").hidden !== (this.own.size === 0)) {
      byId("queries-panel").hidden = this.own.size === 0;
      window.dispatchEvent(new Event("resize")); /* the map has another height now */
    }
    byId("queries").replaceChildren(...[...this.own].map(([name, windows]) => this.#ownTable(name, windows.newest)));
  }

  #ownTable(name, rows) {
    const hidden = ["query", "revision", "final", "window_start"];
    const columns = Object.keys(rows[0]).filter((column) => !hidden.includes(column)).slice(0, COLUMNS_MAX);
    const table = make("table");
    table.append(make("caption", "", name));
    const head = table.createTHead().insertRow();
    head.append(...[...columns.map((column) => (column === "window_end" ? "until" : column)), ""].map((text) => make("th", "", text)));
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      for (const column of columns) line.insertCell().textContent = cell(column, row[column]);
      const isFinal = row.window_end <= (this.finals[name] ?? -Infinity);
      const state = line.insertCell();
      state.textContent = isFinal ? "final" : "open";
      state.title = isFinal ? "No reading can change this window any more" : `May still change; revision ${row.revision}`;
      line.dataset.final = String(isFinal);
    }
    return table;
  }
}

function cell(column, value) {
  if (column === "window_end") return clock(value);
  if (typeof value === "number") return String(Math.round(value * 1000) / 1000);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
