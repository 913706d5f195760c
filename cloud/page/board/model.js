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

/** The kind that suits a field first, and its size. */
export function suited(kind) {
  return { value: { w: 3, h: 2 }, chart: { w: 6, h: 3 }, table: { w: 6, h: 4 }, map: { w: 6, h: 5 }, text: { w: 4, h: 2 } }[kind];
}

/** What a card is called where nobody named it. */
export function titleOf({ title, kind, source, field, device }) {
  if (title) return title;
  if (kind === "text") return "";
  const what = field ? field.replaceAll("_", " ") : source;
  return device ? `${what}, ${device}` : field ? `${what}, ${source}` : what;
}

/** A draft with its past: `change` makes a new one, `undone` goes back. */
export const draft = (board) => ({ now: board, past: [] });
export const change = ({ now, past }, next) => ({ now: next, past: [...past, now].slice(-UNDO_MAX) });
export const undone = ({ now, past }) => (past.length ? { now: past.at(-1), past: past.slice(0, -1) } : { now, past });
