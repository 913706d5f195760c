/* The operations API as the screens use it: JSON in, JSON out, a refusal as an error that says what the server said. */

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answers ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/* A look without an answer for so long has none: a machine that slept, or changed its network, may have a connection that says nothing for a quarter of an hour. */
const LOOK_MAX_MS = 60_000;

/** Ask. Throws ApiError, also where the server is away (status 0). */
async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new ApiError(0, { detail: "the operations API is away" });
  }
  if (!answer.ok) throw new ApiError(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

/** What of an answer is read; one whose end never came is an ApiError of status 0. */
async function read(answer, how) {
  try {
    return await answer[how]();
  } catch {
    throw new ApiError(0, { detail: "the answer was cut off" });
  }
}

/** JSON in and out; null for an empty answer. `signal`: an AbortSignal, for what somebody may stop, or what ends by itself. */
export async function api(method, path, body, signal) {
  const sent = body === undefined ? {} : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await asked(path, { method, signal, ...sent });
  return answer.status === 204 ? null : read(answer, "json");
}

/** Bytes in (a text, or nothing), JSON out. */
export async function sendBytes(method, path, text) {
  const sent = text === null ? {} : { headers: { "Content-Type": "application/octet-stream" }, body: new TextEncoder().encode(text) };
  return read(await asked(path, { method, ...sent }), "json");
}

/** Bytes out. */
export const getBytes = async (path) => new Uint8Array(await read(await asked(path), "arrayBuffer"));
export const get = (path) => api("GET", path, undefined, AbortSignal.timeout(LOOK_MAX_MS));
export const enc = encodeURIComponent;

export const PAGE_MAX = 500; /* of one answer, as the server allows */
const PAGES_MAX = 4; /* of a list that is shown whole; streams have two at most */

/** All of a list that comes in pages: {items, total}. `total` is more than the items where there are more than `pagesMax` pages. */
export async function getAll(path, pagesMax = PAGES_MAX) {
  const items = [];
  let page = { next: null, total: 0 };
  for (let i = 0; i < pagesMax && (i === 0 || page.next !== null); i += 1) {
    page = await get(`${path}?${new URLSearchParams({ limit: PAGE_MAX, ...(i > 0 && { after: page.next }) })}`);
    items.push(...page.items);
  }
  return { items, total: page.total };
}
