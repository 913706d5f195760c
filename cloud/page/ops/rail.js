/* The rail: where one can go, each with its sign and its word; on a phone it is a bar at the bottom. */

import { html } from "../vendor/htm/standalone.module.js";
import { get } from "./api.js";
import { useLoaded } from "./ui.js";

const LOOK_MS = 60_000;

/* Lines on a field of 16 × 16. */
const SIGNS = {
  live: "M1 8h3l2-5 3 10 2-5h4",
  "": "M2 3h12v4H2zM2 9h12v4H2zM5 5h.01M5 11h.01",
  boards: "M2 2h5v7H2zM9 2h5v4H9zM9 8h5v6H9zM2 11h5v3H2z",
  alerts: "M4 11V7a4 4 0 0 1 8 0v4l1.5 1.5h-11zM6.5 14.5h3",
  devices: "M4 4h8v8H4zM8 1v3M8 12v3M1 8h3M12 8h3",
  streams: "M1 6q3.5-4 7 0t7 0M1 11q3.5-4 7 0t7 0",
  queries: "M2 3h12L9.5 8.5V13l-3 1.5v-6z",
  ask: "M2 3h12v10H2zM4.5 6l2 2-2 2M8.5 10h3",
  summaries: "M3 14V9M8 14V3M13 14V6",
  letters: "M2 4h12v9H2zM2 4l6 5 6-5",
  clients: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14a5.5 5.5 0 0 1 11 0",
  trace: "M3 2v6q0 4 4 4h6M10.5 9.5 13 12l-2.5 2.5",
  history: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3l2 2",
  audit: "M2 4l1.5 1.5L6 3M8.5 4.5H14M2 10.5 3.5 12 6 9.5M8.5 11H14",
  api: "M5 4 1.5 8 5 12M11 4l3.5 4-3.5 4",
};

const Sign = ({ name }) => html`<svg class="sign" viewBox="0 0 16 16" aria-hidden="true"><path d=${SIGNS[name]} /></svg>`;

/** `screens`: [key, title] of each that stands on the rail; `here`: the key of what is shown, or where it is `isWithin`. */
export function Rail({ screens, here, isWithin }) {
  const { data } = useLoaded(() => get("/v1/session"), "rail", LOOK_MS);
  return html`${data?.live_url && html`<a href=${data.live_url}><${Sign} name="live" />Live</a>`}
    ${screens.map(([key, title]) => html`<a key=${key} href=${`#/${key}`} aria-current=${key === here ? (isWithin ? "true" : "page") : null}><${Sign} name=${key} />${title}</a>`)}
    <a href="/docs"><${Sign} name="api" />API</a>`;
}
