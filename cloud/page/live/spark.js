/* A spark line: the mean as a line, least and most as a band behind it, over a fixed span of time. */

import { html } from "../vendor/htm/standalone.module.js";
import { KEPT_MS } from "./model.js";

const WIDTH = 120;
const HEIGHT = 26;

export function Spark({ steps: all, now, label }) {
  const steps = all.filter(([t]) => t >= now - KEPT_MS);
  if (steps.length < 2) return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true"></svg>`;
  const oldest = Math.max(now - KEPT_MS, steps[0][0]);
  const span = Math.max(30_000, now - oldest);
  const least = Math.min(...steps.map((step) => step[2]));
  const most = Math.max(...steps.map((step) => step[3]));
  const x = (t) => (WIDTH * (1 - (now - t) / span)).toFixed(1);
  const y = (v) => (most === least ? HEIGHT / 2 : 2 + (HEIGHT - 4) * (1 - (v - least) / (most - least))).toFixed(1);
  const line = steps.map(([t, mean]) => `${x(t)},${y(mean)}`).join(" ");
  const band = [...steps.map((s) => `${x(s[0])},${y(s[3])}`), ...steps.toReversed().map((s) => `${x(s[0])},${y(s[2])}`)].join(" ");
  return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${label}>
    <polygon points=${band} /><polyline points=${line} />
  </svg>`;
}
