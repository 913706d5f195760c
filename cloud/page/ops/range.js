/* The time that charts show: the last minutes as they come, or a part of the past. It stands in the address. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { KEPT_MS } from "../live/model.js";
import { linkTo } from "./ui.js";

const HOUR_MS = 3_600_000;
const SPANS = { "1h": HOUR_MS, "24h": 24 * HOUR_MS, "7d": 7 * 24 * HOUR_MS };
const CHOICES = [["", "live"], ["1h", "last hour"], ["24h", "last 24 hours"], ["7d", "last 7 days"], ["own", "from – to"]];
const STEPS_S = [5, 10, 20, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400];
const POINTS_MAX = 300; /* of one chart */
const SPAN_MIN_MS = 60_000;
const TIME_MAX_MS = Date.UTC(9999, 11, 31); /* a field of date and time has no later year, nor has the API */

/** Is it a time that an address may name, in ms? */
export const isTime = (ms) => ms > 0 && ms <= TIME_MAX_MS;

/** What an address asks for: {isLive, from, to, step}, in ms. What makes no sense is live. */
export function spanOf(params, now = Date.now()) {
  const [from, to] = [Number(params.get("from")), Number(params.get("to"))];
  if (isTime(from) && isTime(to) && to >= from + SPAN_MIN_MS) return { isLive: false, from, to, step: stepOf(to - from) };
  const range = rangeOf(params);
  if (!range) return { isLive: true, from: now - KEPT_MS, to: now, step: 5_000 };
  const length = SPANS[range];
  return { isLive: false, from: now - length, to: now, step: stepOf(length) };
}

/** Which of the spans an address names; "": none that there is. */
const rangeOf = (params) => (Object.hasOwn(SPANS, params.get("range")) ? params.get("range") : "");

/** The shortest step that gives no more than POINTS_MAX points. */
const stepOf = (ms) => 1000 * (STEPS_S.find((one) => ms / (one * 1000) <= POINTS_MAX) ?? STEPS_S.at(-1));

const field = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

/** Chooses it. `path`: of the screen, with its #. */
export function Range({ path, params }) {
  const { from, to } = spanOf(params);
  const hasOwn = params.get("from") !== null;
  const [isOwn, setOwn] = useState(hasOwn);
  const [ends, setEnds] = useState([field(from), field(to)]);
  const choose = ({ target }) => {
    setOwn(target.value === "own");
    if (target.value !== "own") location.hash = linkTo(path, params, { range: target.value, from: "", to: "" });
  };
  const [begin, end] = ends.map((one) => new Date(one).getTime());
  const isGood = end >= begin + SPAN_MIN_MS;
  const show = (event) => {
    event.preventDefault();
    location.hash = linkTo(path, params, { range: "", from: begin, to: end });
  };
  return html`<form class="range" aria-label="Time of the charts" onSubmit=${show}>
    <label>Time <select aria-label="Time" value=${isOwn ? "own" : rangeOf(params)} onChange=${choose}>${CHOICES.map(([key, title]) => html`<option value=${key}>${title}</option>`)}</select></label>
    ${isOwn && html`<input type="datetime-local" aria-label="from" required value=${ends[0]} onInput=${({ target }) => setEnds([target.value, ends[1]])} /> –
      <input type="datetime-local" aria-label="to" required value=${ends[1]} onInput=${({ target }) => setEnds([ends[0], target.value])} />
      <button disabled=${!isGood}>Show</button>`}</form>`;
}
