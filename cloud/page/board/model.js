/* A board's grid, decided without the document: cards snap to twelve columns, never lie on one another, and each change can be undone. */

export const COLUMNS = 12;
export const HEIGHT_MAX = 20;
const UNDO_MAX = 100; /* changes that can be undone */

const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

/** A card within the grid. */
export function within(card) {
  const w = clamp(Math.round(card.w), 1, COLUMNS);
  return { ...card, w, h: clamp(Math.round(card.h), 1, HEIGHT_MAX), x: clamp(Math.round(card.x), 0, COLUMNS - w), y: clamp(Math.round(card.y), 0, 199) };
}

/** Cards so that none lies on another: the one at `first` stays where it is, others move down, as little as they must. */
export function settled(cards, first = -1) {
  const placed = cards.map(within);
  const order = placed.map((_, i) => i).sort((a, b) => (b === first) - (a === first) || placed[a].y - placed[b].y || placed[a].x - placed[b].x);
  const done = [];
  for (const i of order) {
    let card = placed[i];
    for (let blocking = done.find((one) => overlap(one, card)); blocking; blocking = done.find((one) => overlap(one, card))) card = { ...card, y: blocking.y + blocking.h };
    placed[i] = card;
    done.push(card);
  }
  return placed;
}

/** The first free place for a card, from the top, left to right. */
export function added(cards, card) {
  const fits = (x, y) => !cards.some((one) => overlap(one, { ...card, x, y }));
  for (let y = 0; ; y += 1) for (let x = 0; x + card.w <= COLUMNS; x += 1) if (fits(x, y)) return [...cards, { ...card, x, y }];
}

/* Kinds of cards: what people call them, the size that suits first, whether they show one field. */
export const KINDS = {
  value: { title: "Number", w: 3, h: 2, hasField: true },
  gauge: { title: "Gauge", w: 3, h: 3, hasField: true },
  state: { title: "State", w: 3, h: 2, hasField: true },
  chart: { title: "Chart", w: 6, h: 3, hasField: true },
  bars: { title: "Bars", w: 4, h: 4, hasField: true },
  top: { title: "Top list", w: 4, h: 4, hasField: true },
  table: { title: "Table", w: 6, h: 4 },
  map: { title: "Map", w: 6, h: 5 },
  text: { title: "Text", w: 4, h: 2 },
};

const SUITED = { number: ["value", "chart", "gauge", "bars"], string: ["state", "top"], boolean: ["state"] };

/** The kinds that suit a field of this type, the most usual first; none where the type is not known. */
export const kindsFor = (type) => SUITED[type] ?? [];

/** The size that suits a kind first. */
export function suited(kind) {
  const { w, h } = KINDS[kind];
  return { w, h };
}

const BARS_MAX = 50; /* of one card */
const TOP_MAX = 10;
const OF_A_ROW = new Set(["query", "window_start", "window_end", "revision", "final", "complete"]);

/** The lines of a chart, each as a card of its own: of each of its devices each of its fields. Of other cards none. */
export function linesOf(card) {
  if (card.kind !== "chart") return [];
  const devices = card.devices?.length ? card.devices : [card.device ?? null];
  return devices.flatMap((device) => [card.field, ...(card.fields ?? [])].map((field) => ({ ...card, field, device, fields: [], devices: [] })));
}

/** Which of some rows a card shows: of one device or some, of the members of its group, or all. */
export function chosen(rows, { device, devices, group, members }) {
  if (devices?.length) return rows.filter((row) => devices.includes(row.device));
  if (device) return rows.filter((row) => row.device === device);
  if (!group) return rows;
  const wanted = new Set(members ?? []);
  return rows.filter((row) => wanted.has(row.device));
}

/** Of a query only its newest window. */
export function newest(rows) {
  const last = rows[0]?.window_end;
  return last === undefined ? rows : rows.filter((row) => row.window_end === last);
}

/** What a row is of: a device, or a group of a query. `keys`: the query's group columns; where they are not known each text is one. */
export function nameOf(row, keys) {
  if (row.window_end === undefined) return row.device;
  const names = keys?.length ? keys : Object.keys(row).filter((name) => typeof row[name] === "string" && !OF_A_ROW.has(name));
  return names.map((name) => String(row[name] ?? "–")).join(", ") || "all";
}

/** {shown: {name, value}, more}: the highest first, and how many others there are. */
export function barsOf(rows, field, keys) {
  const all = newest(rows).filter((row) => typeof row[field] === "number").map((row) => ({ name: nameOf(row, keys), value: row[field] })).sort((a, b) => b.value - a.value || a.name.localeCompare(b.name));
  return { shown: all.slice(0, BARS_MAX), more: Math.max(0, all.length - BARS_MAX) };
}

const counts = (texts) => {
  const found = new Map();
  for (const text of texts) found.set(text, (found.get(text) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
};

/** {shown: [text, count], what: what the counts are of}. */
export function topOf(model, rows, card) {
  const lists = newest(rows).map((row) => row[card.field]).filter(Array.isArray).flat().filter((one) => one !== null && typeof one === "object" && "item" in one);
  if (lists.length) return { shown: lists.map(({ item, count }) => [String(item), count]).sort((a, b) => b[1] - a[1]).slice(0, TOP_MAX), what: "how often, in the newest window" };
  const state = model.fields?.get(card.field);
  if (state?.kind === "string" && !card.device && !card.group) return { shown: state.state.top(TOP_MAX), what: "readings in the last minutes" };
  const texts = newest(rows).map((row) => row[card.field]).filter((one) => typeof one === "string");
  return { shown: counts(texts).slice(0, TOP_MAX), what: model.fields ? "devices that say so now" : "rows of the newest window" };
}

/** The mean of a field over the newest rows; null where none is a number. */
export function meanOf(rows, field) {
  const numbers = newest(rows).map((row) => row[field]).filter((one) => typeof one === "number");
  return numbers.length ? numbers.reduce((sum, one) => sum + one, 0) / numbers.length : null;
}

/** Where a gauge begins and ends: as the card says, else what was seen lately. */
export function scaleOf(model, rows, { field, low, high }) {
  const steps = model.fields?.get(field)?.state.steps ?? [];
  const seen = [...rows.map((row) => row[field]).filter((one) => typeof one === "number"), ...steps.flatMap(([, , least, most]) => [least, most])];
  return [low ?? Math.min(...seen), high ?? Math.max(...seen)];
}

/** What a card is called where nobody named it. */
export function titleOf({ title, kind, source, field, fields = [], device, devices = [], group }) {
  if (title) return title;
  if (kind === "text") return "";
  const what = field ? [field, ...fields].join(" and ").replaceAll("_", " ") : source;
  const who = devices.join(", ") || device || group;
  return who ? `${what}, ${who}` : field ? `${what}, ${source}` : what;
}

/** A draft with its past: `change` makes a new one, `undone` goes back. */
export const draft = (board) => ({ now: board, past: [] });
export const change = ({ now, past }, next) => ({ now: next, past: [...past, now].slice(-UNDO_MAX) });
export const undone = ({ now, past }) => (past.length ? { now: past.at(-1), past: past.slice(0, -1) } : { now, past });
