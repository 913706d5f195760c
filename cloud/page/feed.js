/* One SSE connection that never gives up: what enters are stream names, what leaves are events, gaps and states.

   The browser's EventSource reconnects by itself with Last-Event-ID while the answer is 200 or nothing at all. Any other status
   ends it for ever (WHATWG HTML 9.2.2), so a closed one is made anew with `last_event_id=` of the last event, after a back-off.
   A cursor holds a position for each stream: with another set of streams the same cursor goes on, and a stream that is new to it
   begins at `from`. This page is a live view: it never asks for more than LOOK_BACK_MS of the past, however long it was away. */

export const BACKOFF_FIRST_MS = 500;
export const BACKOFF_MAX_MS = 15_000;
/* Nothing heard for so long: the connection is taken for half open and made anew from the last id. Nothing is lost by it. */
export const SILENCE_MAX_MS = 60_000;
/* How far back the page looks: enough for a trail, a chart and the last full minute's results. */
export const LOOK_BACK_MS = 150_000;
/* Connections in a row that end without being opened, while we have an id: then the id may be what the server refuses. */
export const REFUSALS_MAX = 3;

/** Time to wait before the given attempt (from 0): doubling, with jitter between half and all of it. */
export function backoffMs(attempt, random = Math.random) {
  return Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** attempt) * (0.5 + random() / 2);
}

const sameSet = (a, b) => a.length === b.length && a.every((name) => b.includes(name));

export class Feed {
  /** `handlers`: event(data), watermark(data), gap(data), state(). */
  constructor(handlers) {
    this.handlers = handlers;
    this.streams = [];
    this.state = "connecting";
    this.retryAt = null;
    this.lastId = null;
    this.reconnects = 0;
    this.attempt = 0;
    this.refusals = 0;
    this.opened = false; /* since the streams last changed */
    this.heardAt = Date.now();
    setInterval(() => this.#checkSilence(), 5_000);
  }

  /** Follow these streams and no others, from where we are. */
  follow(streams) {
    if (sameSet(streams, this.streams)) return;
    this.streams = [...streams];
    this.opened = false;
    clearTimeout(this.timer);
    if (streams.length) this.#open();
    else this.source?.close();
  }

  url() {
    const query = new URLSearchParams(this.streams.map((name) => ["stream", name]));
    query.set("from", new Date(Date.now() - LOOK_BACK_MS).toISOString());
    query.set("on_gap", "latest");
    if (this.lastId) query.set("last_event_id", this.lastId);
    return `/v1/events?${query}`;
  }

  #open() {
    this.source?.close();
    const source = new EventSource(this.url());
    this.source = source;
    source.onopen = () => this.#onOpen();
    source.onmessage = (message) => this.#hear(message, this.handlers.event);
    source.addEventListener("watermark", (message) => this.#hear(message, this.handlers.watermark));
    source.addEventListener("gap", (message) => this.#hear(message, this.handlers.gap));
    source.addEventListener("checkpoint", (message) => this.#hear(message, () => {}));
    source.onerror = () => (source.readyState === EventSource.CLOSED ? this.#reopenLater() : this.#become("reconnecting"));
  }

  #onOpen() {
    if (this.#wasAwayTooLong()) return this.#open();
    if (this.opened) this.reconnects++;
    this.opened = true;
    this.attempt = 0;
    this.refusals = 0;
    this.heardAt = Date.now();
    this.#become("live");
  }

  /* A machine that slept for days would be sent days. */
  #wasAwayTooLong() {
    const away = Date.now() - this.heardAt;
    if (!this.lastId || away <= LOOK_BACK_MS) return false;
    this.#forgetId("away", away);
    return true;
  }

  #forgetId(reason, away) {
    this.lastId = null;
    this.heardAt = Date.now();
    this.handlers.gap({ scope: "page", reason, lost: null, away_s: Math.round(away / 1000) });
  }

  #hear(message, handler) {
    this.heardAt = Date.now();
    if (message.lastEventId) this.lastId = message.lastEventId;
    handler(JSON.parse(message.data));
  }

  #reopenLater() {
    const wait = backoffMs(this.attempt++);
    if (this.lastId && ++this.refusals >= REFUSALS_MAX) this.#forgetId("refused", Date.now() - this.heardAt);
    this.#become("reconnecting", Date.now() + wait);
    this.timer = setTimeout(() => this.#open(), wait);
  }

  #checkSilence() {
    if (this.state === "live" && Date.now() - this.heardAt > SILENCE_MAX_MS) {
      this.heardAt = Date.now();
      this.#open();
    }
  }

  #become(state, retryAt = null) {
    this.state = state;
    this.retryAt = retryAt;
    this.handlers.state();
  }
}
