/* Gaps in words: what is missing, how much, where and why. */

import { byId, clock, duration, make, say } from "./dom.js";

export const GAPS_KEPT = 20;
/* Announcements that come as gaps and lose nothing. */
export const NO_LOSS = new Set(["stream_added", "filter_changed"]);
const REASONS = {
  retention: "no longer kept",
  quota: "the device was full",
  missing: "never arrived",
  rejected: "refused by the cloud",
  epoch: "the stream was made anew",
  truncated: "the log lost its end",
  unverifiable: "the position was not readable",
  oversize: "too large to be sent",
  refused: "the server refused the position",
};

/** A sentence for a gap event. */
export function sentence(gap) {
  if (gap.scope === "page" && gap.reason === "away") return `this page was away for ${duration(gap.away_s)} and shows the last minutes only`;
  const what = gap.scope === "cursor" ? "records" : "readings";
  const count = typeof gap.lost === "number" ? `${gap.lost.toLocaleString("en")} ${gap.lost === 1 ? what.slice(0, -1) : what}` : `some ${what}`;
  const where = [gap.stream && `of ${gap.stream}`, gap.device && `from ${gap.device}`].filter(Boolean).join(" ");
  return `${count} ${where} lost: ${REASONS[gap.reason] ?? gap.reason ?? "unknown"}`.replace(/\s+/g, " ");
}

/** Names of which all that was known is of before: a stream or query that was made anew under its name, or all `streams` of a page that was away. */
export function staleAfter({ scope, reason, stream, streams }) {
  if (scope === "page") return streams;
  return reason === "epoch" ? [stream] : [];
}

export class Gaps {
  constructor() {
    this.kept = []; /* newest last */
  }

  take(gap, now) {
    if (NO_LOSS.has(gap.reason)) return;
    this.kept.push({ at: now, ...gap });
    if (this.kept.length > GAPS_KEPT) this.kept.shift();
    this.changed = true;
  }

  render(now) {
    const newest = this.kept.at(-1);
    byId("gaps").hidden = !newest;
    if (!newest) return;
    say(byId("gaps-newest"), `${sentence(newest)}, ${duration((now - newest.at) / 1000)} ago`);
    if (!this.changed) return;
    this.changed = false;
    say(byId("gaps-spoken"), sentence(newest));
    byId("gaps-list").replaceChildren(...[...this.kept].reverse().map((gap) => make("li", "", `${clock(gap.at)} ${sentence(gap)}`)));
  }
}
