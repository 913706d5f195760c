/* The page: follows our own SSE and hands each event to the panel it belongs to. Events only change what is kept; the document is
   touched at a fixed pace, so that a burst of a thousand events costs one redraw. */

import { HostChart } from "./chart.js";
import { byId, say, setUpTheme } from "./dom.js";
import { Feed } from "./feed.js";
import { Gaps, staleAfter } from "./gaps.js";
import { whole } from "./live/format.js";
import { showOperations } from "./operations.js";
import { Parts } from "./parts.js";
import { Results } from "./results.js";
import { STREAMS_MAX, StreamList } from "./streams.js";
import { Tally } from "./tally.js";
import { Vehicles } from "./vehicles.js";

const RENDER_EVERY_MS = 250;
const RATE_OVER_MS = 5_000;
const STREAMS = ["vehicle_position", "host_metrics", "part_status"];
const QUERIES = ["host_10s", "top_streets", "speed_quantiles", "vehicles_distinct"];
/* Built in, but not on this page. */
const NOT_SHOWN = new Set(["host_minute", "host_sliding", "vehicles_10s"]);

setUpTheme(byId("theme"));
showOperations();
say(byId("zone"), Intl.DateTimeFormat().resolvedOptions().timeZone);
const tally = new Tally(Date.now());
const vehicles = new Vehicles();
const chart = new HostChart();
const finals = {}; /* query -> event time up to which its windows are final */
const results = new Results(finals);
const parts = new Parts();
const gaps = new Gaps();
const rates = []; /* [time, events] of the last RATE_OVER_MS */

const PANELS = {
  vehicle_position: (reading) => vehicles.take(reading),
  host_metrics: (reading) => chart.take(reading),
  part_status: (reading, now) => parts.take(reading, now),
  host_10s: (row) => chart.takeWindow(row),
};

const feed = new Feed({
  event(event) {
    const now = Date.now();
    if (!tally.take(event, now)) return;
    const name = event.query ?? event.stream;
    (PANELS[name] ?? ((row) => results.take(row, !QUERIES.includes(name))))(event, now);
  },
  watermark({ query, watermark }) {
    finals[query] = watermark;
    results.finalChanged();
  },
  gap(detail) {
    if (detail.scope !== "page") staleAfter(detail).forEach((name) => results.forget(name));
    gaps.take(detail, Date.now());
  },
  state: () => renderConnection(),
});
const list = new StreamList(follow);

/* Ours first, in a fixed order, then the newest queries of users, as far as one subscription goes. */
function follow(streams) {
  const names = new Set(streams.map(({ name }) => name));
  const ours = [...STREAMS, ...QUERIES].filter((name) => names.has(name));
  const queries = streams.filter(({ kind, registered }) => kind === "query" && registered);
  const users = queries.filter(({ name }) => !QUERIES.includes(name) && !NOT_SHOWN.has(name)).slice(0, STREAMS_MAX - ours.length);
  results.show(users.map(({ name }) => name), Object.fromEntries(users.map(({ name, keys }) => [name, keys])));
  feed.follow([...ours, ...users.map(({ name }) => name)]);
  renderConnection();
}

/* What is seen counts down every second; what is read out changes only when the state does. */
function renderConnection() {
  const state = list?.problem && feed.state !== "live" ? "reconnecting" : feed.state;
  const wait = feed.retryAt ? Math.ceil((feed.retryAt - Date.now()) / 1000) : 0;
  const why = feed.streams.length ? list?.problem : (list?.problem || "none of this page's streams exists yet");
  const words = state === "live" ? "live" : [state, why].filter(Boolean).join(": ");
  byId("connection").dataset.state = state;
  say(byId("connection-seen"), state === "reconnecting" && wait > 0 ? `${words} (again in ${wait} s)` : words);
  say(byId("connection-spoken"), words);
}

/** 642 ms, 1.4 s. */
const delaySaid = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

function renderHeader(now) {
  rates.push([now, tally.events]);
  while (rates.length > 2 && now - rates[0][0] > RATE_OVER_MS) rates.shift();
  const seconds = (now - rates[0][0]) / 1000;
  say(byId("rate"), seconds ? whole((tally.events - rates[0][1]) / seconds) : "–");
  say(byId("events"), whole(tally.events));
  const delay = tally.delay();
  say(byId("delay"), delay ? delaySaid(delay.p50) : "–");
  say(byId("delay-95"), delay ? `95 % < ${delaySaid(delay.p95)}` : "");
}

function render() {
  const now = Date.now();
  renderConnection();
  renderHeader(now);
  vehicles.render(now);
  parts.render(now);
  results.render();
  gaps.render(now);
}

setInterval(render, RENDER_EVERY_MS);
setInterval(() => chart.render(), 1_000);

/** For tests and the curious: what came, whether it came once and whole, and over which connection. */
window.edgewake = {
  tally,
  feed,
  finals,
  vehicles,
  get stats() {
    const { events, readings, results: rows, duplicates, missing } = tally;
    return {
      events, readings, results: rows, duplicates, missing, gaps: [...gaps.kept],
      series: Object.fromEntries(tally.series),
      reconnects: feed.reconnects,
      state: byId("connection").dataset.state,
      streams: feed.streams,
      shown: { vehicles: vehicles.count, drawn: vehicles.drawn, points: chart.points, windows: chart.windows, parts: parts.count },
    };
  },
};
