/* Fields of streams and queries over a part of the past, by SQL: what the lake keeps, and what Kafka has after it. */

import { api } from "./api.js";
import { useLoaded } from "./ui.js";

const AGAIN_MS = 60_000; /* each question reads the past once more */

const name = (text) => `"${text.replaceAll('"', '""')}"`;
const text = (one) => `'${one.replaceAll("'", "''")}'`;
const moment = (ms) => `make_timestamp_ms(${Math.round(ms)})`;

/** The question: for each step its time, and of each field mean, least and most. `devices`: only these; null: all. Pure. */
export function pastSql({ source, fields, devices, isQuery }, { from, to, step }) {
  const at = isQuery ? "window_end" : "t";
  const figures = fields.flatMap((field) => [`avg(${name(field)})`, `min(${name(field)})`, `max(${name(field)})`]);
  const only = devices ? ` AND device IN (${devices.map(text).join(", ") || "''"})` : "";
  return `SELECT epoch_ms(time_bucket(INTERVAL '${step / 1000} seconds', ${at})) AS "@at", ${figures.join(", ")} FROM ${name(source)}`
    + ` WHERE ${at} >= ${moment(from)} AND ${at} < ${moment(to)}${only} GROUP BY 1 ORDER BY 1`;
}

/** Field → [time, mean, least, most] of each step. Pure. */
export function stepsOf(fields, rows) {
  return new Map(fields.map((field, i) => [field, rows.filter((row) => row[1 + 3 * i] !== null).map((row) => [row[0], ...row.slice(1 + 3 * i, 4 + 3 * i)])]));
}

const ask = async (one, span) => stepsOf(one.fields, (await api("POST", "/v1/sql", { sql: pastSql(one, span), seconds: 30 })).rows);

/** Field → steps. A field that was declared and never sent is no column; then each is asked for alone, and those without an answer are left out. */
async function asked(one, span) {
  try {
    return await ask(one, span);
  } catch (error) {
    if (error.status !== 422) throw error;
  }
  const found = new Map();
  for (const field of one.fields) {
    try {
      for (const [name, steps] of await ask({ ...one, fields: [field] }, span)) found.set(name, steps);
    } catch (error) {
      if (error.status !== 422) throw error;
    }
  }
  return found;
}

/** Asks, one after the other: key → field → steps. `wanted`: {key, source, fields, devices, isQuery}; `spanAt(now)`: the span then. */
export function usePast(wanted, spanAt, key) {
  return useLoaded(async () => {
    const span = spanAt(Date.now());
    const found = new Map();
    if (span.isLive) return { span, found };
    for (const one of wanted.filter(({ fields }) => fields.length)) found.set(one.key, await asked(one, span));
    return { span, found };
  }, `past ${key} ${JSON.stringify(wanted)}`, AGAIN_MS);
}
