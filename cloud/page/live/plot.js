/* A plot in its element: made anew when the theme changes, as wide as the element, gone with it. */

import { useEffect, useRef } from "../vendor/htm/standalone.module.js";
import { onThemeChange, themeColour } from "../dom.js";
import { short } from "./format.js";

const [TIME_HEIGHT, NUMBER_WIDTH] = [34, 58]; /* of axes, with their texts, in pixels */
const NUMBERS_APART = 22; /* pixels between two numbers of an axis, at least */

/** The axis below. `values`: of some places what is written there; `space`: pixels between two. */
export const below = (axis, values, space = 60) => ({ ...axis, values, space, size: TIME_HEIGHT });

const [DIGIT_WIDTH, TICKS_WIDTH] = [7, 20]; /* of an axis' texts, and of what stands beside them, in pixels */

/** How wide an axis of numbers is, so that none of them is cut. `texts`: null before uPlot knows them. */
export const widthOf = (texts) => Math.max(NUMBER_WIDTH, TICKS_WIDTH + DIGIT_WIDTH * Math.max(0, ...(texts ?? []).map((one) => one.length)));

/** The axis of numbers. */
export const beside = (axis, more = {}) => ({ ...axis, size: (_plot, texts) => widthOf(texts), space: NUMBERS_APART, values: (_plot, at, _axis, _space, step) => at.map((one) => (one === null ? "" : short(one, step))), ...more });

/** How all plots draw an axis. */
function axisOfTheme() {
  return { stroke: themeColour("--muted"), grid: { stroke: themeColour("--grid"), width: 1 }, ticks: { stroke: themeColour("--grid") } };
}

/**
 * The reference for the plot's element. `options`: given an axis, what uPlot wants beside size, legend and cursor;
 * asked again when `key` or the theme changes. `height`: given the element, its pixels.
 */
export function usePlot({ data, options, key, height }) {
  const element = useRef(null);
  const plot = useRef(null);
  const latest = useRef(data); /* what a plot that is made anew begins with */
  latest.current = data;
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot({
        width: element.current.clientWidth || 300, height: height(element.current), legend: { show: false }, cursor: { drag: { x: false, y: false } },
        ...options(axisOfTheme()),
      }, latest.current, element.current);
    };
    make();
    onThemeChange(make);
    const size = new ResizeObserver(() => plot.current?.setSize({ width: element.current.clientWidth, height: height(element.current) }));
    size.observe(element.current);
    return () => {
      document.removeEventListener("themechange", make);
      size.disconnect();
      plot.current.destroy();
    };
  }, [key]);
  useEffect(() => plot.current?.setData(data));
  return element;
}
