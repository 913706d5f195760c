/* Which streams to follow, and over which connections.

   All streams that exist are followed over ONE connection: a browser opens six to one HTTP/1.1 server, for all its tabs together. A
   stream or query that appears later gets a second Feed, because the cursor of the first does not fit a larger set. At FEEDS_MAX the newest
   Feed is replaced by one that also has the newcomers and begins OVERLAP_MS ago; tally.js drops what it has already had. */

import { Feed } from "./feed.js";

export const FEEDS_MAX = 2;
export const STREAMS_MAX = 16; /* of one subscription, as the server allows */
export const LIST_EVERY_MS = 2_000;
/* How far back a page that is opened looks: enough for a trail, a chart and the last full minute's results. */
export const OVERLAP_MS = 150_000;

export class Feeds {
  /** `choose(list)` picks names out of GET /v1/streams; `handlers` as for Feed and replaced(streams). */
  constructor(choose, handlers) {
    this.choose = choose;
    this.handlers = handlers;
    this.feeds = [];
    this.retired = 0; /* reconnects of feeds that were replaced */
    this.#lookForStreams();
  }

  get streams() {
    return this.feeds.flatMap((feed) => feed.streams);
  }

  get reconnects() {
    return this.retired + this.feeds.reduce((sum, feed) => sum + feed.reconnects, 0);
  }

  async #lookForStreams() {
    if (this.feeds.length === 0 || this.feeds.some((feed) => feed.state === "live")) await this.#ask();
    setTimeout(() => this.#lookForStreams(), LIST_EVERY_MS);
  }

  async #ask() {
    try {
      const answer = await fetch("/v1/streams");
      if (answer.ok) this.#follow(this.choose(await answer.json()));
    } catch {
      /* the server is away: the feeds say so */
    }
  }

  #follow(wanted) {
    const known = new Set(this.streams);
    const fresh = wanted.filter((name) => !known.has(name));
    if (fresh.length === 0) return;
    const replaced = this.feeds.length < FEEDS_MAX ? null : this.feeds.pop();
    if (replaced) {
      this.retired += replaced.reconnects;
      this.handlers.replaced(replaced.streams);
      replaced.close();
    }
    const names = [...(replaced?.streams ?? []), ...fresh].slice(0, STREAMS_MAX);
    this.feeds.push(new Feed(names, new Date(Date.now() - OVERLAP_MS).toISOString(), this.handlers));
  }
}
