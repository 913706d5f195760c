/* One SSE connection that never gives up: what enters are stream names, what leaves are events, gaps and states.

   The browser's EventSource reconnects by itself with Last-Event-ID while the answer is 200 or nothing at all. Any other status
   ends it for ever (WHATWG HTML 9.2.2), so a closed one is made anew with `last_event_id=` of the last event, after a back-off.
   A cursor holds a position for each stream: with another set of streams the same cursor goes on, and a stream that is new to it
   begins at `from`. This page is a live view: it never asks for more than LOOK_BACK_MS of the past, however long it was away. */

export const BACKOFF_FIRST_MS = 500;
export const BACKOFF_MAX_MS = 15_000;
/* Seconds of silence after which the server sends an event `heartbeat`, some 50 bytes. */
export const BEAT_S = 10;
/* So many of them did not come: the connection is taken for half open and made anew from the last id. Nothing is lost by it. A
   half more, since a beat may be late on a busy server. */
export const BEATS_MISSED_MAX = 2.5;
/* How long the browser itself may try before the same is done: an attempt at a machine that is gone takes minutes. */
export const TRIES_MAX_MS = 60_000;
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
  /** `handlers`: event(data), watermark(data), gap(data), state(). `beatS`: seconds between signs of life, 5 at least. */
  constructor(handlers, beatS = BEAT_S) {
    this.handlers = handlers;
    this.beatS = beatS;
    this.streams = [];
    this.state = "connecting";
    this.retryAt = null;
    this.lastId = null;
    this.reconnects = 0;
    this.attempt = 0;
    this.refusals = 0;
    this.opened = false; /* since the streams last changed */
    this.heardAt = Date.now(); /* what came before it, or that nothing did, is known */
    this.signAt = Date.now(); /* of the connection: it was begun, it lives, it failed */
    setInterval(() => this.#checkSilence(), this.beatS * 500);
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
    query.set("beat", "event");
    query.set("heartbeat", this.beatS);
    if (this.lastId) query.set("last_event_id", this.lastId);
    return `/v1/events?${query}`;
  }

  #open() {
    this.source?.close();
    const source = new EventSource(this.url());
    this.source = source;
    this.signAt = Date.now();
    source.onopen = () => this.#onOpen();
    source.onmessage = (message) => this.#hear(message, this.handlers.event);
    source.addEventListener("watermark", (message) => this.#hear(message, this.handlers.watermark));
    source.addEventListener("gap", (message) => this.#hear(message, this.handlers.gap));
    for (const quiet of ["checkpoint", "heartbeat"]) source.addEventListener(quiet, (message) => this.#hear(message, () => {}));
    source.onerror = () => this.#onError(source);
  }

  #onOpen() {
    if (this.#wasAwayTooLong()) return this.#open();
    if (this.opened) this.reconnects++;
    this.opened = true;
    this.attempt = 0;
    this.refusals = 0;
    this.heardAt = this.signAt = Date.now();
    this.#become("live");
  }

  #onError(source) {
    this.signAt = Date.now();
    if (source.readyState === EventSource.CLOSED) this.#reopenLater();
    else this.#become("reconnecting");
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
    this.handlers.gap({ scope: "page", reason, lost: null, away_s: Math.round(away / 1000), streams: this.streams });
  }

  #hear(message, handler) {
    this.heardAt = this.signAt = Date.now();
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
    if (!this.streams.length || this.source.readyState === EventSource.CLOSED) return;
    const isOpen = this.source.readyState === EventSource.OPEN;
    if (Date.now() - this.signAt <= (isOpen ? BEATS_MISSED_MAX * this.beatS * 1000 : TRIES_MAX_MS)) return;
    this.#open();
    this.#become("reconnecting");
  }

  #become(state, retryAt = null) {
    this.state = state;
    this.retryAt = retryAt;
    this.handlers.state();
  }
}
