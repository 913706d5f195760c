/* Counts what came, and whether it came once, in order and whole. Pure: no DOM, no clock of its own. `window.edgewake.stats` shows it.

   A reading is placed by (stream, device, epoch, seq); a result by its query, window and group, with a growing revision. */

export const SERIES_MAX = 2_000; /* (stream, device) and result keys remembered each; the oldest go first */
export const DELAYS_KEPT = 300;
export const GAPS_KEPT = 20;

/** Remove the oldest entries of a Map over `max`. */
export function bound(map, max) {
  for (const key of map.keys()) {
    if (map.size <= max) break;
    map.delete(key);
  }
}

/** The group of a result: its strings and numbers of identity, not its values. */
export function resultKey(row) {
  const group = Object.entries(row).filter(([name, value]) => typeof value === "string" && name !== "query");
  return JSON.stringify([row.query, row.window_start, row.window_end, group]);
}

export class Tally {
  /** `startedAt`: readings that were taken in before then are history and say nothing about delay. */
  constructor(startedAt) {
    this.startedAt = startedAt;
    this.events = 0;
    this.readings = 0;
    this.results = 0;
    this.duplicates = 0; /* a reading again, or behind one that was already here */
    this.replayed = 0; /* dropped because a Feed was replaced and began earlier, as it should */
    this.missing = 0; /* seq numbers that were jumped over */
    this.gapsSaid = []; /* what the server told us is lost, newest last */
    this.series = new Map(); /* "stream device epoch" -> {first, last, count, missing} */
    this.revisions = new Map(); /* result key -> revision */
    this.delays = [];
    this.overlap = new Set(); /* streams whose Feed was replaced: repeats are expected */
  }

  /** Count one event; false: it was here before and must not be shown again. */
  take(event, now) {
    this.events++;
    return event.query ? this.#takeResult(event) : this.#takeReading(event, now);
  }

  gap(detail, now) {
    this.gapsSaid.push({ at: now, ...detail });
    if (this.gapsSaid.length > GAPS_KEPT) this.gapsSaid.shift();
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
    if (seq <= known.last) {
      return this.#repeated(stream);
    }
    const jumped = seq - known.last - 1;
    known.missing += jumped;
    this.missing += jumped;
    known.last = seq;
    known.count++;
    return true;
  }

  #repeated(name) {
    if (this.overlap.has(name)) this.replayed++;
    else this.duplicates++;
    return false;
  }

  #takeResult(row) {
    this.results++;
    const key = resultKey(row);
    const revision = this.revisions.get(key);
    if (revision !== undefined && row.revision <= revision) {
      return this.#repeated(row.query);
    }
    this.revisions.set(key, row.revision);
    bound(this.revisions, SERIES_MAX);
    return true;
  }
}
