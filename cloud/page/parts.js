/* The state of every part, as the supervisor says it every two seconds on the stream `part_status`. */

import { byId, duration, make, number, say } from "./dom.js";

export const PARTS_MAX = 40;
export const STALE_MS = 6_000; /* three reports missed: what we show is history */

const CELLS = ["", "", "n wide", "n", "n", "n wide", "n"]; /* classes of the columns; see index.html */

export class Parts {
  constructor() {
    this.parts = new Map(); /* part -> {status, heardAt, row} */
  }

  get count() {
    return this.parts.size;
  }

  take(status, now) {
    const known = this.parts.get(status.part) ?? { row: this.#row(status.part) };
    /* By arrival, so that a viewer's wrong clock does not age them; a page that catches up gets the newest last. */
    this.parts.set(status.part, Object.assign(known, { status, heardAt: now }));
    if (this.count > PARTS_MAX) this.#forget();
  }

  render(now) {
    let ready = 0;
    for (const { status, heardAt, row } of this.parts.values()) {
      const state = now - heardAt > STALE_MS ? "stale" : String(status.state);
      ready += state === "ready";
      row.dataset.state = state;
      const cells = [
        status.part,
        state === "stale" ? `not heard for ${duration((now - heardAt) / 1000)}` : state,
        number(status.pid),
        number(status.restarts),
        `${number(status.rss_mib)} MiB`,
        `${number(status.cpu_percent)} %`,
        duration(status.uptime_s),
      ];
      cells.forEach((text, i) => say(row.children[i].lastChild, text));
    }
    byId("parts-waiting").hidden = this.count > 0;
    const memory = [...this.parts.values()].reduce((sum, { status }) => sum + (Number(status.rss_mib) || 0), 0);
    say(byId("parts-sum"), this.count ? `${ready} of ${this.count} ready, ${number(memory)} MiB` : "");
  }

  #row(part) {
    const row = make("tr");
    CELLS.forEach((className, i) => {
      const cell = make("td", className);
      if (i === 1) cell.append(make("i"));
      cell.append(make("span"));
      row.append(cell);
    });
    row.dataset.part = part;
    const body = byId("parts");
    const after = [...body.children].find((other) => other.dataset.part > part);
    body.insertBefore(row, after ?? null);
    return row;
  }

  #forget() {
    const [part, { row }] = this.parts.entries().next().value;
    row.remove();
    this.parts.delete(part);
  }
}
