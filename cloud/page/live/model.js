/* What the Live page knows of each stream and query. Pure: events and times in, values to show out.

   A numeric field keeps one point for each step of time: the mean, least and most over all devices. A text field counts its
   values, a boolean keeps its last state, `lat` and `lon` make a place. Every list has a bound, so a page may stay open for days. */

import { NO_LOSS, staleAfter } from "../gaps.js";
import { bound } from "../tally.js";
import { Windows } from "../results.js";
import { age, unitSaid } from "./format.js";

export const STEP_MS = 5_000; /* one point of a spark line */
export const KEPT_MS = 15 * 60_000; /* a spark line shows this much, and texts are counted for it */
export const DEVICES_MAX = 1_000; /* of one stream; the one heard longest ago goes first */
export const TEXTS_MAX = 200; /* different values of one text field that are counted */
const TEXTS_STEP_MS = 60_000; /* texts that came within it are forgotten together */
export const FIELDS_SHOWN = 8; /* of one card; its page shows all */
export const EVENTS_KEPT = 50; /* newest events of one stream, for its page */
export const PAUSE_AMBER = 5; /* pauses of its usual length after which a stream counts as silent */
export const PAUSE_ARRIVALS_MIN = 5; /* arrivals from which on a usual pause is known */
export const SILENT_MIN_MS = 15_000; /* nothing counts as silent before */
export const CATCHING_UP_MS = 5_000; /* a stream of which something was taken within it is read up: its silence is not known */
export const LATELY_MS = 60_000; /* streams heard within it stand by name */
const NOT_RUNNING = new Set(["failed", "refused", "retrying"]);
const OWN = new Set(["stream", "device", "epoch", "seq", "t", "received_at", "query", "revision"]);

/** Points of one number over time, each over all devices: [time, sum, count, least, most]. */
export class Series {
  constructor() {
    this.points = [];
  }

  take(value, at) {
    const start = at - (at % STEP_MS);
    const last = this.points.at(-1);
    if (last && last[0] === start) this.#add(last, value);
    else if (!last || start > last[0]) this.points.push([start, value, 1, value, value]);
    else {
      const known = this.points.find((point) => point[0] === start);
      if (known) this.#add(known, value);
    }
    while (this.points.length && this.points[0][0] < this.points.at(-1)[0] - KEPT_MS) this.points.shift();
  }

  /** Put before what it has the points that are older than all of them. */
  precede(past) {
    const first = this.points[0]?.[0] ?? Infinity;
    this.points.unshift(...past.points.filter(([at]) => at < first));
  }

  #add(point, value) {
    point[1] += value;
    point[2] += 1;
    point[3] = Math.min(point[3], value);
    point[4] = Math.max(point[4], value);
  }

  /** [time, mean, least, most] of each step, oldest first. */
  get steps() {
    return this.points.map(([t, sum, count, least, most]) => [t, sum / count, least, most]);
  }
}

/** How often each text came in the last minutes, and how many came in all. */
class Texts {
  constructor() {
    this.counts = new Map();
    this.total = 0;
    this.minutes = []; /* {start, counts, total} of each, oldest first: taken off again when it is no longer of the last ones */
  }

  take(text, _at, came) {
    const start = came - (came % TEXTS_STEP_MS);
    if (start <= (this.minutes.at(-1)?.start ?? start) - KEPT_MS) return;
    let minute = this.minutes.findLast((one) => one.start === start);
    if (!minute) {
      minute = { start, counts: new Map(), total: 0 };
      this.minutes.push(minute);
      this.#inOrder();
    }
    for (const one of [minute, this]) {
      one.total += 1;
      add(one.counts, text, 1);
      bound(one.counts, TEXTS_MAX);
    }
  }

  precede(past) {
    for (const { start, counts, total } of past.minutes) {
      const minute = this.minutes.find((one) => one.start === start);
      if (minute) Object.assign(minute, { counts: joined(counts, minute.counts), total: minute.total + total });
      else this.minutes.push({ start, counts, total });
    }
    this.total += past.total;
    this.counts = joined(past.counts, this.counts);
    this.#inOrder();
  }

  /** Sorts the minutes, and takes off those that are no longer of the last ones. */
  #inOrder() {
    this.minutes.sort((a, b) => a.start - b.start);
    while (this.minutes[0].start <= this.minutes.at(-1).start - KEPT_MS) {
      const { counts, total } = this.minutes.shift();
      this.total -= total;
      for (const [text, count] of counts) {
        const left = (this.counts.get(text) ?? 0) - count;
        if (left > 0) this.counts.set(text, left);
        else this.counts.delete(text);
      }
    }
  }

  /** The most frequent [value, count], at most `n`. */
  top(n) {
    return [...this.counts].sort((a, b) => b[1] - a[1]).slice(0, n);
  }
}

/** Count a text, which stands last from then on. */
function add(counts, text, count) {
  const before = counts.get(text) ?? 0;
  counts.delete(text);
  counts.set(text, before + count);
}

/** Counts of before with those of after, in the order in which they were heard. */
function joined(before, after) {
  const all = new Map(before);
  for (const [text, count] of after) add(all, text, count);
  bound(all, TEXTS_MAX);
  return all;
}

const KINDS = { number: () => new Series(), string: () => new Texts(), boolean: () => ({ last: null, take(value) { this.last = value; }, precede(past) { this.last ??= past.last; } }) };

/** What tells one reading of a stream from all others. */
const idOf = ({ device, epoch, seq, t, received_at: at }) => JSON.stringify([device, epoch, seq, t, at]);

/** One stream of readings. */
export class StreamModel {
  constructor(name) {
    this.name = name;
    this.devices = new Map(); /* device -> its latest reading */
    this.fields = new Map(); /* field -> {kind, state} */
    this.newest = []; /* latest events first */
    this.arrivals = []; /* times, ms, of the last arrivals, for the rate and the usual pause */
    this.heardAt = null;
    this.isPastKnown = false; /* has the server said what came before? */
    this.isPastCut = false; /* was that more than is kept of it here? */
    this.tookAt = 0; /* when the last one was taken, by the page's clock */
    this.beganAt = null; /* when the first that was taken had come, at the server */
    this.preceding = new Set(); /* ids of what was read from the past: the feed may bring it, too */
    this.count = 0;
    this.infos = {}; /* field -> {type, unit, description}, as the catalogue has them */
  }

  /** A model that knows no reading yet. */
  anew() {
    return Object.assign(new StreamModel(this.name), { infos: this.infos, isOfSystem: this.isOfSystem });
  }

  /** The unit of a field; empty where nobody said one. */
  unitOf(field) {
    return unitSaid(this.infos[field]?.unit ?? "");
  }

  /** Readings that came before those it has, oldest first, as if they had been taken first. */
  precede(readings, now) {
    const past = new StreamModel(this.name);
    const older = readings.filter(({ received_at: at }) => this.beganAt === null || at < this.beganAt);
    for (const reading of older) {
      past.take(reading, now);
      this.preceding.add(idOf(reading));
    }
    if (past.heardAt === null) return;
    this.tookAt = now;
    this.count += past.count;
    this.heardAt = Math.max(past.heardAt, this.heardAt ?? 0);
    this.arrivals = [...past.arrivals, ...this.arrivals];
    this.newest = [...this.newest, ...past.newest].slice(0, EVENTS_KEPT);
    for (const [device, reading] of this.devices) {
      past.devices.delete(device);
      past.devices.set(device, reading);
    }
    bound(past.devices, DEVICES_MAX);
    this.devices = past.devices;
    for (const [name, field] of past.fields) {
      if (!this.fields.has(name)) this.fields.set(name, field);
      else if (this.fields.get(name).kind === field.kind) this.fields.get(name).state.precede(field.state);
    }
  }

  take(reading, now) {
    if (this.preceding.size && this.preceding.delete(idOf(reading))) return;
    this.beganAt ??= reading.received_at ?? now;
    this.tookAt = now;
    this.count += 1;
    const came = Math.min(now, reading.received_at ?? now); /* what is read from the past did not come now */
    this.heardAt = Math.max(came, this.heardAt ?? 0);
    this.arrivals.push(came);
    if (this.arrivals.length > 200) this.arrivals.splice(0, 100);
    const before = this.devices.get(reading.device);
    if (!before || isNewer(reading, before)) {
      this.devices.delete(reading.device);
      this.devices.set(reading.device, reading);
      bound(this.devices, DEVICES_MAX);
    }
    this.newest.unshift(reading);
    this.newest.length = Math.min(this.newest.length, EVENTS_KEPT);
    for (const [name, value] of Object.entries(reading)) if (!OWN.has(name)) this.#takeField(name, value, reading.t ?? now, came);
  }

  #takeField(name, value, at, came) {
    const kind = typeof value;
    if (!KINDS[kind]) return;
    if (this.fields.get(name)?.kind !== kind) this.fields.set(name, { kind, state: KINDS[kind]() });
    this.fields.get(name).state.take(value, at, came);
  }

  /** Readings a second over the last arrivals; null until there are two. */
  rate(now) {
    const since = this.arrivals.filter((at) => now - at <= 60_000);
    if (since.length < 2) return null;
    return since.length / Math.max(1, (now - since[0]) / 1000);
  }

  /** well, late (no word for five of its usual pauses) or unknown: nothing lately, and too little to have a usual pause. */
  state(now) {
    if (this.heardAt === null) return "unknown";
    if (this.arrivals.length < PAUSE_ARRIVALS_MIN) return now - this.heardAt > KEPT_MS ? "unknown" : "well";
    const pause = (this.arrivals.at(-1) - this.arrivals[0]) / (this.arrivals.length - 1);
    const isSilent = now - this.heardAt > Math.max(SILENT_MIN_MS, PAUSE_AMBER * pause);
    return isSilent && now - this.tookAt > CATCHING_UP_MS ? "late" : "well";
  }

  get hasPlace() {
    return this.fields.get("lat")?.kind === "number" && this.fields.get("lon")?.kind === "number";
  }

  /** The latest value of a field: of the only device, or the mean over all with the least and the most. */
  now(field) {
    const values = [...this.devices.values()].map((reading) => reading[field]).filter((value) => typeof value === "number");
    if (values.length === 0) return null;
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return { mean, least: Math.min(...values), most: Math.max(...values), devices: values.length };
  }

  /** Fields to show, numbers first, each once; places and those that say what the device's name says are left out. */
  get shown() {
    const order = { number: 0, boolean: 1, string: 2 };
    const hidden = this.hasPlace ? new Set(["lat", "lon"]) : new Set();
    return [...this.fields].filter(([name]) => !hidden.has(name)).sort((a, b) => order[a[1].kind] - order[b[1].kind]);
  }
}

/** Within a device the higher (epoch, seq) is the later reading; without them the later time is. */
function isNewer(reading, before) {
  if (reading.epoch != null && before.epoch != null && reading.epoch !== before.epoch) return reading.epoch > before.epoch;
  if (reading.seq != null && before.seq != null) return reading.seq > before.seq;
  return (reading.t ?? 0) >= (before.t ?? 0);
}

/** One query: its newest windows, and up to when they are final. */
export class QueryModel {
  constructor(name) {
    this.name = name;
    this.windows = new Windows(DEVICES_MAX);
    this.units = {}; /* column -> unit, as the server says */
    this.finalTo = null;
    this.heardAt = null;
  }

  /** A model that knows no window yet: revisions of another query of the name count for themselves. */
  anew() {
    const model = Object.assign(new QueryModel(this.name), { state: this.state, units: this.units });
    model.windows.groupBy(this.keys);
    return model;
  }

  take(row, now) {
    this.heardAt = now;
    this.windows.take(row);
  }

  /** Those that a tile shows. */
  get rows() {
    return this.windows.newest;
  }

  /** All that are kept, the newest window first. */
  get all() {
    return this.windows.all;
  }

  /** The unit of a column: that of the field whose values it has; empty for what is counted or computed. */
  unitOf(column) {
    return unitSaid(this.units[column] ?? "");
  }

  /** Its group columns; null: not known. */
  get keys() {
    return this.windows.keys;
  }

  isFinal(row) {
    return this.finalTo !== null && row.window_end <= this.finalTo;
  }
}

/** All of them, by name. */
export class Live {
  constructor() {
    this.streams = new Map();
    this.queries = new Map();
    this.own = new Map(); /* of a board: a series for each chart that has one of its own */
    this.gaps = [];
    this.events = 0;
  }

  /** `list`: GET /v1/streams. Makes a model for each, forgets those that are gone. */
  know(list) {
    const names = new Set(list.map(({ name }) => name));
    for (const kept of [this.streams, this.queries]) for (const name of kept.keys()) if (!names.has(name)) kept.delete(name);
    for (const { name, kind, keys, fields, units, state, of_system: isOfSystem } of list) {
      (kind === "query" ? this.streams : this.queries).delete(name); /* a name may be that of the other kind by now */
      if (kind === "query") {
        if (!this.queries.has(name)) this.queries.set(name, new QueryModel(name));
        const query = this.queries.get(name);
        query.windows.groupBy(keys ?? null); /* a page may be open before the analysis says them */
        Object.assign(query, { state, units: units ?? {} });
      } else {
        if (!this.streams.has(name)) this.streams.set(name, new StreamModel(name));
        Object.assign(this.streams.get(name), { infos: fields ?? {}, isOfSystem });
      }
    }
  }

  take(event, now) {
    this.events += 1;
    if (event.query) this.queries.get(event.query)?.take(event, now);
    else this.streams.get(event.stream)?.take(event, now);
  }

  final(query, watermark) {
    const model = this.queries.get(query);
    if (model) model.finalTo = watermark;
  }

  gap(detail, now) {
    for (const name of staleAfter(detail)) {
      if (this.streams.has(name)) this.streams.set(name, this.streams.get(name).anew());
      /* After a while away the rows of a query are good still, and its next window may take hours. */
      if (this.queries.has(name) && detail.scope !== "page") this.queries.set(name, this.queries.get(name).anew());
    }
    if (NO_LOSS.has(detail.reason)) return;
    this.gaps.unshift({ ...detail, at: now });
    this.gaps.length = Math.min(this.gaps.length, EVENTS_KEPT);
  }

  /** Streams: `pinned` first, then those heard within LATELY_MS by name, so that no card jumps, then others, the one heard last first. */
  ordered(pinned, now) {
    const rank = ({ name, heardAt }) => [pinned.has(name) ? 0 : 1, heardAt === null ? Infinity : Math.max(0, now - heardAt - LATELY_MS)];
    return [...this.streams.values()].filter(({ isOfSystem }) => !isOfSystem).sort((a, b) => {
      const [x, y] = [rank(a), rank(b)];
      return x[0] - y[0] || (x[1] === y[1] ? 0 : x[1] - y[1]) || a.name.localeCompare(b.name);
    });
  }

  /** [name, its streams] of the devices whose name `has` what is sought, by name; of the system's own streams none. */
  devicesCalled(has) {
    const found = new Map();
    for (const { name, devices, isOfSystem } of this.streams.values()) {
      if (isOfSystem) continue;
      for (const device of devices.keys()) if (has(device)) found.set(device, [...(found.get(device) ?? []), name]);
    }
    return [...found].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  }

  /** What is not as it should be: {href, text} of each query that does not run and each stream that is silent for longer than usual, the
      latest first. */
  problems(now) {
    const stopped = [...this.queries.values()].filter(({ state }) => NOT_RUNNING.has(state)).map(({ name, state }) => ({ href: `#/queries/${encodeURIComponent(name)}`, text: `${name} does not run: ${state}` }));
    const silent = [...this.streams.values()].filter((one) => !one.isOfSystem && one.state(now) === "late").sort((a, b) => b.heardAt - a.heardAt).map(({ name, heardAt }) => ({ href: `#/streams/${encodeURIComponent(name)}`, text: `${name} is silent for longer than usual: its last reading came ${age(now - heardAt)}` }));
    return [...stopped, ...silent];
  }
}
