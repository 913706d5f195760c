/* What came before a page was opened: the last quarter of an hour of a stream, and its latest readings where that is empty. */

import { Series } from "./model.js";

const PAST_MINUTES = 15;
const PAST_MAX = 500; /* readings of one stream; one that sends more has a line from what the feed looks back at */
const PAGE_MAX = 10_000; /* readings of one answer, as the server allows */
const PAGES_MAX = 5; /* that lines are asked for; of more they have what the feed looks back at, and say so */
const LATEST_MAX = 200; /* devices of one stream */
const AGAIN_MS = 2_000; /* until a server that still reads older records is asked again */
const ANSWER_MAX_MS = 60_000; /* of a question that reads the past: those behind it wait for its answer */
const TURNS_MAX = 5;
export const PAST_AGAIN_MS = 3_000; /* between two questions to a server that does not answer */

/** An answer; null where it is a refusal. Throws where there is none now: no server, one that fails, an end in the middle. */
async function asked(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(ANSWER_MAX_MS) });
  if (answer.status >= 500) throw new Error(`${path}: ${answer.status}`);
  return answer.ok ? await answer.json() : null;
}

/** Give a stream's model what came before. False where the server did not answer all: ask again later. */
export async function precede(stream) {
  if (!(await isAnswered(ask(stream)))) return false;
  stream.isPastKnown = true;
  return true;
}

/** The same for a model of one device, of the last minutes alone; `onGap` gets what it lost. */
export const precedeDevice = (stream, device, onGap) => isAnswered(askOfDevice(stream, device, onGap));

/** The latest reading of a device, however old it is; for a model that has none. */
export const precedeLatest = (stream, device) => isAnswered(latestOf(encodeURIComponent(stream.name), { key: device }).then((rows) => stream.heardAt === null && stream.precede(rows, Date.now())));

const isAnswered = (asking) => asking.then(() => true, () => false);

async function ask(stream) {
  const name = encodeURIComponent(stream.name);
  const page = await asked(`/v1/streams/${name}/events?from=-${PAST_MINUTES}m&limit=${PAST_MAX}`);
  if (page?.live) stream.precede(page.events.filter((event) => !event.$event), Date.now());
  stream.isPastCut = Boolean(page && !page.live);
  if (stream.heardAt === null) stream.precede(await latestOf(name, { limit: LATEST_MAX }), Date.now());
}

async function askOfDevice(stream, device, onGap) {
  const query = new URLSearchParams({ from: `-${PAST_MINUTES}m`, limit: PAGE_MAX, where: `device = ${quoted(device)}` });
  const page = await asked(`/v1/streams/${encodeURIComponent(stream.name)}/events?${query}`);
  if (page?.live) stream.precede(page.events.filter((event) => !event.$event), Date.now());
  for (const event of page?.events ?? []) if (event.$event === "gap") onGap(event);
}

/** For a stream of which more came than its model was given: the lines of its numbers begin a quarter of an hour ago, too. */
export async function precedeLines(stream) {
  const numbers = [...stream.fields].filter(([, { kind }]) => kind === "number").map(([name]) => name);
  if (numbers.length === 0 || !stream.isPastCut) return;
  const lines = await linesOf(stream.name, numbers).catch(() => null);
  for (const [name, line] of lines ?? []) stream.fields.get(name)?.state.precede(line);
}

/** Field → its line over the last minutes, of these devices or of all; null where it is not answered, or more than PAGES_MAX have. */
export async function linesOf(source, fields, devices = null) {
  const where = devices && `device IN (${[...devices].map(quoted).join(", ")})`;
  const lines = new Map(fields.map((name) => [name, new Series()]));
  let place = { from: `-${PAST_MINUTES}m` };
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = new URLSearchParams({ ...place, limit: PAGE_MAX, select: ["t", ...fields.map((name) => `"${name}"`)].join(", "), ...(where && { where }) });
    const answer = await asked(`/v1/streams/${encodeURIComponent(source)}/events?${query}`);
    if (!answer) return null;
    for (const event of answer.events) for (const [name, line] of lines) if (typeof event[name] === "number") line.take(event[name], event.t);
    if (answer.live) return lines;
    place = { after: answer.cursor };
  }
  return null;
}

const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

/** The latest readings, oldest first; those that a server still reads are waited for, where it has none yet. */
async function latestOf(name, choice) {
  for (let turn = 0; turn < TURNS_MAX; turn += 1) {
    if (turn > 0) await new Promise((go) => setTimeout(go, AGAIN_MS));
    const latest = await asked(`/v1/latest/${name}?${new URLSearchParams(choice)}`);
    const rows = latest?.rows ?? [];
    if (rows.length > 0 || !latest?.missing.includes("reading")) return rows.toSorted((a, b) => a.received_at - b.received_at);
  }
  return [];
}
