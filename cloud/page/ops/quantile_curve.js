/* The curve of quantiles: how many of the readings are at most which value, with the bounds of the sketch's error as a band. */

import { html, useEffect, useRef } from "../vendor/htm/standalone.module.js";
import { onThemeChange, themeColour } from "../dom.js";
import { value, words } from "../live/format.js";

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
  const element = useRef(null);
  const plot = useRef(null);
  const column = (of) => quantiles.map((one) => one[of]);
  const data = [quantiles.map(({ rank }) => rank * 100), column("high"), column("low"), column("value")];
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const axis = { stroke: themeColour("--muted"), grid: { stroke: themeColour("--grid"), width: 1 }, ticks: { stroke: themeColour("--grid") } };
      const edge = { stroke: "transparent", points: { show: false } };
      plot.current = new uPlot({
        width: element.current.clientWidth || 300, height: HEIGHT, legend: { show: false }, cursor: { drag: { x: false, y: false } },
        axes: [{ ...axis, space: 60, values: (_, at) => at.map((one) => `${one} %`) }, { ...axis, size: 58, values: (_, at) => at.map(value) }],
        scales: { x: { time: false, range: [0, 100] } },
        series: [{}, edge, edge, { stroke: themeColour("--cpu"), width: 2, label: name }],
        bands: [{ series: [1, 2], fill: themeColour("--band") }],
      }, data, element.current);
    };
    make();
    onThemeChange(make);
    const size = new ResizeObserver(() => plot.current?.setSize({ width: element.current.clientWidth, height: HEIGHT }));
    size.observe(element.current);
    return () => {
      document.removeEventListener("themechange", make);
      size.disconnect();
      plot.current.destroy();
    };
  }, [name]);
  useEffect(() => plot.current?.setData(data));
  return html`<section class="card"><h2>How its values lie <small>so many of the readings are at most so much</small></h2>
    <div class="chart" ref=${element} role="img" aria-label=${`Quantiles of ${words(name)}${of}: ${curveSaid(quantiles)}`}></div></section>`;
}
