/* The curve of quantiles: how many of the readings are at most which value, with the bounds of the sketch's error as a band. */

import { html } from "../vendor/htm/standalone.module.js";
import { themeColour } from "../dom.js";
import { value, words } from "../live/format.js";
import { below, beside, usePlot } from "../live/plot.js";

const HEIGHT = 160;
const HALF = 0.5;
const MOST = 0.99;

/** Shares that the curve is drawn of; the server answers twenty of one question. */
export const CURVE_RANKS = [0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99, 0.999];

/** What the curve says, for who does not see it. */
export function curveSaid(quantiles) {
  const at = (rank) => quantiles.find((one) => one.rank === rank)?.value;
  return `half are at most ${value(at(HALF))}, 99 % at most ${value(at(MOST))}`;
}

/** `quantiles`: {rank, value, low, high}, by rank. */
export function QuantileCurve({ quantiles, name, of = "" }) {
  const column = (of) => quantiles.map((one) => one[of]);
  const edge = { stroke: "transparent", points: { show: false } };
  const element = usePlot({
    data: [quantiles.map(({ rank }) => rank * 100), column("high"), column("low"), column("value")],
    key: name,
    height: () => HEIGHT,
    options: (axis) => ({
      axes: [below(axis, (_, at) => at.map((one) => `${one} %`)), beside(axis)],
      scales: { x: { time: false, range: [0, 100] } },
      series: [{}, edge, edge, { stroke: themeColour("--cpu"), width: 2, label: name }],
      bands: [{ series: [1, 2], fill: themeColour("--band") }],
    }),
  });
  return html`<section class="card"><h2>How its values lie <small>so many of the readings are at most so much</small></h2>
    <div class="chart" ref=${element} role="img" aria-label=${`Quantiles of ${words(name)}${of}: ${curveSaid(quantiles)}`}></div></section>`;
}
