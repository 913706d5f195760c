/* What came before a page was opened: the last quarter of an hour of a stream, and its latest readings where that is empty. */

const PAST_MINUTES = 15;
const PAST_MAX = 500; /* readings of one stream; one that sends more has a line from what the feed looks back at */
const OF_DEVICE_MAX = 10_000; /* of one device, as one answer may have */
const LATEST_MAX = 200; /* devices of one stream */
const AGAIN_MS = 2_000; /* until a server that still reads older records is asked again */
const TURNS_MAX = 5;
export const PAST_AGAIN_MS = 3_000; /* between two questions to a server that does not answer */

/** An answer; null where it is a refusal. Throws where there is none now: no server, one that fails, an end in the middle. */
async function asked(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (answer.status >= 500) throw new Error(`${path}: ${answer.status}`);
  return answer.ok ? await answer.json() : null;
}

/** Give a stream's model what came before. False where the server did not answer all: ask again later. `device`: of this one alone;
    `onGap` gets what it lost. */
export async function precede(stream, device = null, onGap = () => {}) {
  try {
    await (device === null ? ask(stream) : askOfDevice(stream, device, onGap));
  } catch {
    return false;
  }
  stream.isPastKnown = true;
  return true;
}

async function ask(stream) {
  const name = encodeURIComponent(stream.name);
  const page = await asked(`/v1/streams/${name}/events?from=-${PAST_MINUTES}m&limit=${PAST_MAX}`);
  if (page?.live) stream.precede(page.events.filter((event) => !event.$event), Date.now());
  if (stream.heardAt === null) stream.precede(await latestOf(name, { limit: LATEST_MAX }), Date.now());
}

/** The latest row says first whether the device sends on this stream at all. */
async function askOfDevice(stream, device, onGap) {
  const name = encodeURIComponent(stream.name);
  const rows = await latestOf(name, { key: device });
  if (rows.length === 0) return;
  const query = new URLSearchParams({ from: `-${PAST_MINUTES}m`, limit: OF_DEVICE_MAX, where: `device = '${device.replaceAll("'", "''")}'` });
  const page = await asked(`/v1/streams/${name}/events?${query}`);
  if (page?.live) stream.precede(page.events.filter((event) => !event.$event), Date.now());
  for (const event of page?.events ?? []) if (event.$event === "gap") onGap(event);
  if (stream.heardAt === null) stream.precede(rows, Date.now());
}

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
