/* Some lines over the last quarter of an hour, with their names beside them. */

import { html } from "../vendor/htm/standalone.module.js";
import { themeColour } from "../dom.js";
import { value } from "../live/format.js";
import { KEPT_MS } from "../live/model.js";
import { below, beside, usePlot } from "../live/plot.js";

const HEIGHT = 160;

/** `lines`: {title, colour (its name in the theme), dash, points: [time, value]}, all with the same times. */
export function Lines({ lines, label }) {
  const hour = (_, at) => at.map((s) => new Date(s * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false }));
  const element = usePlot({
    data: [lines[0].points.map(([t]) => t / 1000), ...lines.map((line) => line.points.map(([, y]) => y))],
    key: label,
    height: () => HEIGHT,
    options: (axis) => ({
      axes: [below(axis, hour), beside(axis)],
      scales: { x: { time: true, range: () => [(Date.now() - KEPT_MS) / 1000, Date.now() / 1000] }, y: { range: (_, least, most) => [0, Math.max(1, most * 1.1)] } },
      series: [{}, ...lines.map((line) => ({ label: line.title, stroke: themeColour(line.colour), width: 2, dash: line.dash }))],
    }),
  });
  return html`<div class="chart" ref=${element} role="img" aria-label=${label}></div>
    <p class="legend">${lines.map((line) => html`<span><i style=${{ borderTopColor: `var(${line.colour})`, borderTopStyle: line.dash.length ? "dashed" : "solid" }}></i>${line.title} <b>${value(line.points.at(-1)?.[1])}</b></span>`)}</p>`;
}
