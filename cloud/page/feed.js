/* One SSE connection that never gives up: what enters are stream names, what leaves are events, gaps and states.

   The browser's EventSource reconnects by itself with Last-Event-ID while the answer is 200 or nothing at all. Any other status
   ends it for ever (WHATWG HTML 9.2.2), so a closed one is made anew with `last_event_id=` of the last event, after a back-off.
   A cursor fits its own set of streams only: a Feed never changes its streams, feeds.js adds Feeds. */

export const BACKOFF_FIRST_MS = 500;
export const BACKOFF_MAX_MS = 15_000;
/* Nothing heard for so long: the connection is taken for half open and made anew from the last id. Nothing is lost by it. */
export const SILENCE_MAX_MS = 60_000;
/* Statuses that say that our cursor, not the server, is the trouble. */
const CURSOR_REFUSED = new Set([400, 409, 410, 422]);

/** Time to wait before the given attempt (from 0): doubling, with jitter between half and all of it. */
export function backoffMs(attempt, random = Math.random) {
  return Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** attempt) * (0.5 + random() / 2);
}

export class Feed {
  /** `handlers`: event(data), watermark(data), gap(data), state(feed). `from`: where to begin when there is no id yet. */
  constructor(streams, from, handlers) {
    this.streams = streams;
    this.from = from;
    this.handlers = handlers;
    this.state = "connecting";
    this.retryAt = null;
    this.lastId = null;
    this.reconnects = 0;
    this.attempt = 0;
    this.opens = 0;
    this.heardAt = Date.now();
    this.watchdog = setInterval(() => this.#checkSilence(), 5_000);
    this.#open();
  }

  close() {
    clearInterval(this.watchdog);
    clearTimeout(this.timer);
    this.source?.close();
    this.#become("closed");
  }

  url() {
    const query = new URLSearchParams(this.streams.map((name) => ["stream", name]));
    if (this.lastId) query.set("last_event_id", this.lastId);
    else query.set("from", this.from);
    return `/v1/events?${query}`;
  }

  #open() {
    this.source?.close();
    const source = new EventSource(this.url());
    this.source = source;
    source.onopen = () => this.#opened();
    source.onmessage = (message) => this.#hear(message, this.handlers.event);
    source.addEventListener("watermark", (message) => this.#hear(message, this.handlers.watermark));
    source.addEventListener("gap", (message) => this.#hear(message, this.handlers.gap));
    source.onerror = () => (source.readyState === EventSource.CLOSED ? this.#reopenLater() : this.#become("reconnecting"));
  }

  #opened() {
    if (this.opens++ > 0) this.reconnects++;
    this.attempt = 0;
    this.heardAt = Date.now();
    this.#become("live");
  }

  #hear(message, handler) {
    this.heardAt = Date.now();
    if (message.lastEventId) this.lastId = message.lastEventId;
    handler(JSON.parse(message.data));
  }

  async #reopenLater() {
    const wait = backoffMs(this.attempt++);
    this.#become("reconnecting", Date.now() + wait);
    this.timer = setTimeout(() => this.#open(), wait);
    if (this.lastId && (await this.#cursorIsRefused())) {
      this.handlers.gap({ reason: "cursor refused", streams: this.streams });
      this.lastId = null;
    }
  }

  /* EventSource hides the status, so ask once more and look at it only. */
  async #cursorIsRefused() {
    const asking = new AbortController();
    try {
      const answer = await fetch(this.url(), { signal: asking.signal, headers: { Accept: "text/event-stream" } });
      return CURSOR_REFUSED.has(answer.status);
    } catch {
      return false;
    } finally {
      asking.abort();
    }
  }

  #checkSilence() {
    if (this.state === "live" && Date.now() - this.heardAt > SILENCE_MAX_MS) {
      this.heardAt = Date.now();
      this.#become("reconnecting");
      this.#open();
    }
  }

  #become(state, retryAt = null) {
    this.state = state;
    this.retryAt = retryAt;
    this.handlers.state(this);
  }
}
