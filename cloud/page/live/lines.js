/* Several lines in one chart: two fields, or two devices, each in its colour, with their last values below. */

import { html } from "../vendor/htm/standalone.module.js";
import { themeColour } from "../dom.js";
import { CHART_HEIGHT, hoursOf, scaleOf, withGaps } from "./detail.js";
import { value } from "./format.js";
import { below, beside, usePlot } from "./plot.js";

export const COLOURS = 6; /* of series, as the style sheet names them */
const DASH = [6, 4]; /* of a name that has to share its colour with another one */

const places = new Map(); /* what a line is of -> its place among all of this page */
addEventListener("hashchange", () => places.clear());

/** {colour, isDashed} of a name: the same on all charts of a page. */
export function styleOf(name) {
  if (!places.has(name)) places.set(name, places.size);
  const place = places.get(name);
  return { colour: `--series-${(place % COLOURS) + 1}`, isDashed: place % (2 * COLOURS) >= COLOURS };
}

/** `lines`: {name: what its colour is of, label, unit, steps}; `title`: what they are, for who does not see them; `span`: [from, to] in ms, without it the last minutes. */
export function LinesChart({ lines, title, span }) {
  const styles = lines.map(({ name }) => styleOf(name));
  const units = [...new Set(lines.map(({ unit }) => unit))]; /* each has a scale of its own, and the first two an axis */
  const tables = lines.map(({ steps }) => withGaps(steps)).map((steps) => [steps.map(([at]) => at / 1000), steps.map(([, mean]) => mean)]);
  const element = usePlot({
    data: uPlot.join(tables),
    key: `${lines.map(({ name, label, unit }) => `${name} ${label} ${unit}`)} ${span ?? ""}`,
    height: (box) => box.clientHeight || CHART_HEIGHT,
    options: (axis) => ({
      axes: [below(axis, hoursOf(span), 70), ...units.slice(0, 2).map((unit, i) => beside(axis, { scale: `in ${unit}`, side: i === 0 ? 3 : 1, ...(i > 0 && { grid: { show: false } }) }))],
      scales: { x: { time: true, range: scaleOf(span) } },
      series: [{}, ...lines.map(({ label, unit }, i) => ({ label, scale: `in ${unit}`, stroke: themeColour(styles[i].colour), width: 2, ...(styles[i].isDashed && { dash: DASH }) }))],
    }),
  });
  return html`<div class="chart" ref=${element} role="img" aria-label=${`${title} over time: ${lines.map(({ label }) => label).join(", ")}`}></div>
    <ul class="legend" aria-label=${`Lines of ${title}`}>${lines.map(({ label, unit, steps }, i) => html`<li key=${label}><i class=${styles[i].isDashed ? "dashed" : ""} style=${{ borderColor: `var(${styles[i].colour})` }}></i>
      <span title=${label}>${label}</span> <b>${value(steps.at(-1)?.[1])}${unit && html`<small>\u2009${unit}</small>`}</b></li>`)}</ul>`;
}
