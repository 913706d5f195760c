/* What came before a page was opened: the last quarter of an hour of a stream, and its latest readings where that is empty. */

const PAST_MINUTES = 15;
const PAST_MAX = 500; /* readings of one stream; one that sends more has a line from what the feed looks back at */
const LATEST_MAX = 200; /* devices of one stream */
const AGAIN_MS = 2_000; /* until a server that still reads older records is asked again */
const TURNS_MAX = 5;

/** An answer; null where it is a refusal. Throws where there is none now: no server, one that fails, an end in the middle. */
async function asked(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (answer.status >= 500) throw new Error(`${path}: ${answer.status}`);
  return answer.ok ? await answer.json() : null;
}

/** Give a stream's model what came before. False where the server did not answer all: ask again later. */
export async function precede(stream) {
  try {
    await ask(stream);
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
  for (let turn = 0; turn < TURNS_MAX && stream.heardAt === null; turn += 1) {
    if (turn > 0) await new Promise((go) => setTimeout(go, AGAIN_MS));
    const latest = await asked(`/v1/latest/${name}?limit=${LATEST_MAX}`);
    const rows = (latest?.rows ?? []).toSorted((a, b) => a.received_at - b.received_at);
    stream.precede(rows, Date.now());
    if (!latest?.missing.includes("reading")) return;
  }
}
