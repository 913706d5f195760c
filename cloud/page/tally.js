/* Counts what came, and whether it came once, in order and whole. Pure: no DOM, no clock of its own. `window.edgewake.stats` shows it.

   A reading is placed by (stream, device, epoch, seq). A result has its revision in it, so the same row twice is a repeat. */

export const SERIES_MAX = 2_000; /* (stream, device, epoch) remembered; the oldest go first */
export const ROWS_MAX = 2_000; /* results remembered, likewise */
export const DELAYS_KEPT = 300;

/** Remove the oldest entries of a Map over `max`. */
export function bound(map, max) {
  for (const key of map.keys()) {
    if (map.size <= max) break;
    map.delete(key);
  }
}

export class Tally {
  /** `startedAt`: readings that were taken in before then are history and say nothing about delay. */
  constructor(startedAt) {
    this.startedAt = startedAt;
    this.events = 0;
    this.readings = 0;
    this.results = 0;
    this.duplicates = 0; /* a reading again, or behind one that was already here */
    this.missing = 0; /* seq numbers that were jumped over */
    this.series = new Map(); /* "stream device epoch" -> {first, last, count, missing} */
    this.rows = new Map(); /* results as text -> true */
    this.delays = [];
  }

  /** Count one event; false: it was here before and must not be shown again. */
  take(event, now) {
    this.events++;
    return event.query ? this.#takeResult(event) : this.#takeReading(event, now);
  }

  /** Milliseconds from the device's clock to this page: {p50, p95}, or null before the first. */
  delay() {
    if (this.delays.length === 0) return null;
    const sorted = [...this.delays].sort((a, b) => a - b);
    return { p50: sorted[Math.floor(sorted.length * 0.5)], p95: sorted[Math.floor(sorted.length * 0.95)] };
  }

  #takeReading(event, now) {
    if (!this.#inOrder(event)) return false;
    this.readings++;
    if (event.received_at < this.startedAt) return true;
    this.delays.push(now - event.t);
    if (this.delays.length > DELAYS_KEPT) this.delays.shift();
    return true;
  }

  #inOrder({ stream, device, epoch, seq }) {
    if (seq === null || seq === undefined) return true; /* a plain device that does not number */
    const key = `${stream} ${device} ${epoch}`;
    const known = this.series.get(key);
    if (!known) {
      this.series.set(key, { first: seq, last: seq, count: 1, missing: 0 });
      bound(this.series, SERIES_MAX);
      return true;
    }
    if (seq <= known.last) return this.#repeated();
    const jumped = seq - known.last - 1;
    known.missing += jumped;
    this.missing += jumped;
    known.last = seq;
    known.count++;
    return true;
  }

  #repeated() {
    this.duplicates++;
    return false;
  }

  #takeResult(row) {
    this.results++;
    const text = JSON.stringify(row);
    if (this.rows.has(text)) return this.#repeated();
    this.rows.set(text, true);
    bound(this.rows, ROWS_MAX);
    return true;
  }
}
