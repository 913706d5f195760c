/* The page: follows our own SSE and hands each event to the panel it belongs to. Events only change what is kept; the document is
   touched at a fixed pace, so that a burst of a thousand events costs one redraw. */

import { HostChart } from "./chart.js";
import { byId, duration, number, say, setUpTheme } from "./dom.js";
import { Feeds, STREAMS_MAX } from "./feeds.js";
import { Parts } from "./parts.js";
import { Results } from "./results.js";
import { Tally } from "./tally.js";
import { Vehicles } from "./vehicles.js";

const RENDER_EVERY_MS = 250;
const RATE_OVER_MS = 5_000;
const STREAMS = ["vehicle_position", "host_metrics", "part_status"];
const QUERIES = ["host_10s", "top_streets", "speed_quantiles", "vehicles_distinct"];
/* Built in, but not on this page. */
const NOT_SHOWN = new Set(["host_minute", "host_sliding", "vehicles_10s"]);

setUpTheme(byId("theme"));
const tally = new Tally(Date.now());
const vehicles = new Vehicles();
const chart = new HostChart();
const results = new Results();
const parts = new Parts();
const finals = {}; /* query -> event time up to which its windows are final */
const rates = []; /* [time, events] of the last RATE_OVER_MS */

const PANELS = {
  vehicle_position: (reading) => vehicles.take(reading),
  host_metrics: (reading) => chart.take(reading),
  part_status: (reading, now) => parts.take(reading, now),
  host_10s: (row) => chart.takeWindow(row),
};

const feeds = new Feeds(choose, {
  event(event) {
    const now = Date.now();
    if (!tally.take(event, now)) return;
    const name = event.query ?? event.stream;
    (PANELS[name] ?? ((row) => results.take(row, !QUERIES.includes(name))))(event, now);
  },
  watermark: ({ query, watermark }) => (finals[query] = watermark),
  gap: (detail) => tally.gap(detail, Date.now()),
  replaced: (streams) => streams.forEach((name) => tally.overlap.add(name)),
  state: () => renderConnection(),
});

/* Ours first, in a fixed order, then what users added, as far as one subscription goes. */
function choose({ streams }) {
  const queries = streams.filter(({ kind, registered }) => kind === "query" && registered).map(({ name }) => name);
  const names = new Set(streams.map(({ name }) => name));
  const ours = [...STREAMS, ...QUERIES].filter((name) => names.has(name));
  return [...ours, ...queries.filter((name) => !QUERIES.includes(name) && !NOT_SHOWN.has(name))].slice(0, STREAMS_MAX);
}

function renderConnection() {
  const worst = feeds?.feeds.find((feed) => feed.state !== "live") ?? feeds?.feeds[0];
  const state = worst?.state ?? "connecting";
  const wait = worst?.retryAt ? Math.ceil((worst.retryAt - Date.now()) / 1000) : 0;
  byId("connection").dataset.state = state;
  say(byId("connection").lastChild, state === "reconnecting" && wait > 0 ? `reconnecting in ${wait} s` : state);
}

function renderHeader(now) {
  rates.push([now, tally.events]);
  while (rates.length > 2 && now - rates[0][0] > RATE_OVER_MS) rates.shift();
  const seconds = (now - rates[0][0]) / 1000;
  say(byId("rate"), seconds ? number((tally.events - rates[0][1]) / seconds) : "–");
  say(byId("events"), tally.events.toLocaleString("en"));
  const delay = tally.delay();
  say(byId("delay"), delay ? `${number(delay.p50)} ms` : "–");
  say(byId("delay-95"), delay ? `95 % < ${number(delay.p95)} ms` : "");
  const gap = tally.gapsSaid.at(-1);
  byId("gaps").hidden = !gap;
  if (gap) say(byId("gaps"), `gap said ${duration((now - gap.at) / 1000)} ago: ${gap.reason ?? "unknown"}`);
}

function render() {
  const now = Date.now();
  renderConnection();
  renderHeader(now);
  vehicles.render(now);
  parts.render(now);
  results.render();
}

setInterval(render, RENDER_EVERY_MS);
setInterval(() => chart.render(), 1_000);

/** For tests and the curious: what came, whether it came once and whole, and over which connections. */
window.edgewake = {
  tally,
  feeds,
  finals,
  get stats() {
    const { events, readings, results: rows, duplicates, replayed, missing, gapsSaid } = tally;
    return {
      events, readings, results: rows, duplicates, replayed, missing, gapsSaid: [...gapsSaid],
      series: Object.fromEntries(tally.series),
      reconnects: feeds.reconnects,
      state: byId("connection").dataset.state,
      streams: feeds.streams,
      shown: { vehicles: vehicles.count, points: chart.points, windows: chart.windows, parts: parts.count },
    };
  },
};
