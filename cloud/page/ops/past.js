/* Fields of streams and queries over a part of the past, by SQL: what the lake keeps, and what Kafka has after it. */

import { api } from "./api.js";
import { useLoaded } from "./ui.js";

const AGAIN_MS = 60_000; /* each question reads the past once more */
const ROOM_CHARS = 8_000; /* of a question for its fields, and for its devices: the API takes 20,000 in all */

const name = (text) => `"${text.replaceAll('"', '""')}"`;
const text = (one) => `'${one.replaceAll("'", "''")}'`;
const FIGURES = ["avg", "min", "max", "count"].map((figure) => (field) => `${figure}(${name(field)})`);
const moment = (ms) => `make_timestamp_ms(${Math.round(ms)})`;

/** The question: for each step its time, and of each field mean, least, most and how many. `devices`: only these; null: all. Pure. */
export function pastSql({ source, fields, devices, isQuery }, { from, to, step }) {
  const at = isQuery ? "window_end" : "t";
  const figures = fields.flatMap((field) => FIGURES.map((figure) => figure(field)));
  const only = devices ? ` AND device IN (${devices.map(text).join(", ") || "''"})` : "";
  return `SELECT epoch_ms(time_bucket(INTERVAL '${step / 1000} seconds', ${at})) AS "@at", ${figures.join(", ")} FROM ${name(source)}`
    + ` WHERE ${at} >= ${moment(from)} AND ${at} < ${moment(to)}${only} GROUP BY 1 ORDER BY 1`;
}

/** A list in parts, in its order, each of at most ROOM_CHARS where it is written; one part of an empty list. Pure. */
export function portions(all, written) {
  const found = [[]];
  let room = ROOM_CHARS;
  for (const one of all) {
    const chars = written(one).length + 2;
    if (chars > room && found.at(-1).length) {
      found.push([]);
      room = ROOM_CHARS;
    }
    found.at(-1).push(one);
    room -= chars;
  }
  return found;
}

/** Field → [time, mean, least, most] of each step, in order. `rows`: the answers about some devices each, together. Pure. */
export function stepsOf(fields, rows) {
  return new Map(fields.map((field, i) => {
    const steps = new Map(); /* time -> [mean, least, most, how many] */
    for (const row of rows) {
      const [mean, least, most, count] = row.slice(1 + 4 * i, 5 + 4 * i);
      if (mean === null) continue;
      const [mean0, least0, most0, count0] = steps.get(row[0]) ?? [0, least, most, 0];
      const all = count0 + count;
      steps.set(row[0], [(mean0 * count0 + mean * count) / all, Math.min(least0, least), Math.max(most0, most), all]);
    }
    return [field, [...steps].sort((a, b) => a[0] - b[0]).map(([at, [mean, least, most]]) => [at, mean, least, most])];
  }));
}

/** Is a refusal about one of these fields: no column of that name, or one that holds no numbers? Pure. */
export function isOfField(error, fields) {
  if (error.status !== 422) return false;
  const [, column] = /Referenced column "(.*)" not found/s.exec(error.message) ?? [];
  return column === undefined ? error.message.includes("No function matches") : fields.includes(column);
}

async function ask(one, span) {
  const rows = [];
  for (const devices of one.devices ? portions(one.devices, text) : [null]) {
    rows.push(...(await api("POST", "/v1/sql", { sql: pastSql({ ...one, devices }, span), seconds: 30 })).rows);
  }
  return stepsOf(one.fields, rows);
}

/** Field → steps. A field that was declared and never sent is no column; then each is asked for alone, and those that are none are left out. */
export async function asked(one, span) {
  const found = new Map();
  const take = async (fields) => {
    for (const [field, steps] of await ask({ ...one, fields }, span)) found.set(field, steps);
  };
  for (const fields of portions(one.fields, (field) => FIGURES.map((figure) => figure(field)).join(", "))) {
    try {
      await take(fields);
    } catch (error) {
      if (!isOfField(error, fields)) throw error;
      for (const field of fields.length > 1 ? fields : []) {
        await take([field]).catch((fault) => {
          if (!isOfField(fault, [field])) throw fault;
        });
      }
    }
  }
  return found;
}

/** Asks, one after the other: `found`, key → field → steps, and `faults`, key → the error where a question was refused. `wanted`: {key, source, fields, devices, isQuery}; `spanAt(now)`: the span then. */
export function usePast(wanted, spanAt, key, againMs = AGAIN_MS) {
  return useLoaded(async () => {
    const span = spanAt(Date.now());
    const [found, faults] = [new Map(), new Map()];
    if (span.isLive) return { span, found, faults };
    for (const one of wanted.filter(({ fields }) => fields.length)) {
      try {
        found.set(one.key, await asked(one, span));
      } catch (error) {
        if (error.status !== 422) throw error;
        faults.set(one.key, error);
      }
    }
    return { span, found, faults };
  }, `past ${key} ${JSON.stringify(wanted)}`, againMs);
}
