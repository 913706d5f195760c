/* The live chart of a machine: `host_metrics` as it comes, and the query `host_10s` as steps with a band from least to most. */

import { bound } from "./tally.js";
import { byId, make, number, onThemeChange, say, themeColour } from "./dom.js";

export const HOSTS_MAX = 16; /* devices in the list; the one heard first goes first */
export const POINTS_MAX = 180; /* readings kept per device: three minutes at one a second */
export const WINDOWS_MAX = 40; /* ten-second windows kept per device */
const SHOWN_S = 150;

export class HostChart {
  constructor() {
    this.hosts = new Map(); /* device -> {points: [{t, cpu, memory}], windows: Map(start -> row)} */
    this.select = byId("host");
    this.box = byId("chart");
    this.select.addEventListener("change", () => this.render());
    onThemeChange(() => this.#make());
    new ResizeObserver(() => this.plot?.setSize(this.#size())).observe(this.box);
    this.#make();
  }

  /** Points drawn now, for the curious. */
  get points() {
    return this.#shown()?.points.length ?? 0;
  }

  get windows() {
    return this.#shown()?.windows.size ?? 0;
  }

  take(reading) {
    const { points } = this.#host(reading.device);
    points.push({ t: reading.t / 1000, cpu: reading.cpu_percent, memory: reading.memory_percent });
    if (points.length > POINTS_MAX) points.shift();
  }

  takeWindow(row) {
    if (row.metric !== "cpu_percent") return;
    const { windows } = this.#host(row.device);
    windows.set(row.window_start, row);
    bound(windows, WINDOWS_MAX);
  }

  render() {
    const host = this.#shown();
    byId("host-waiting").hidden = Boolean(host?.points.length);
    if (!host?.points.length) return;
    const latest = host.points.at(-1);
    say(byId("cpu"), `${number(latest.cpu)} %`);
    say(byId("memory"), `${number(latest.memory)} %`);
    this.now = latest.t;
    this.plot.setData(this.#data(host));
  }

  #host(device) {
    if (!this.hosts.has(device)) {
      this.hosts.set(device, { points: [], windows: new Map() });
      bound(this.hosts, HOSTS_MAX);
      const chosen = this.select.value;
      this.select.replaceChildren(...[...this.hosts.keys()].map((name) => make("option", "", name)));
      if (this.hosts.has(chosen)) this.select.value = chosen;
      this.select.hidden = false;
    }
    return this.hosts.get(device);
  }

  #shown() {
    return this.hosts.get(this.select.value);
  }

  /* uPlot wants one x for all series: readings and windows are joined, holes spanned. A window is a step: two points. */
  #data({ points, windows }) {
    const steps = [...windows.values()].sort((a, b) => a.window_start - b.window_start);
    const x = steps.flatMap((w) => [w.window_start / 1000 + 0.001, w.window_end / 1000 - 0.001]);
    const twice = (name) => steps.flatMap((w) => [w[name], w[name]]);
    const raw = [...points].sort((a, b) => a.t - b.t);
    return uPlot.join([
      [raw.map((p) => p.t), raw.map((p) => p.cpu), raw.map((p) => p.memory)],
      [x, twice("max"), twice("min"), twice("mean")],
    ]);
  }

  #size() {
    return { width: Math.max(200, this.box.clientWidth), height: Math.max(120, this.box.clientHeight) };
  }

  #make() {
    this.plot?.destroy();
    const axis = { stroke: themeColour("--muted"), grid: { stroke: themeColour("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
    const line = (colour, width) => ({ stroke: themeColour(colour), width, points: { show: false }, spanGaps: true });
    this.plot = new uPlot(
      {
        ...this.#size(),
        legend: { show: false },
        cursor: { show: false },
        padding: [8, 24, 0, 0],
        scales: {
          x: { range: () => [(this.now ?? Date.now() / 1000) - SHOWN_S, this.now ?? Date.now() / 1000] },
          y: { range: (_, low, high) => [0, Math.min(102, Math.max(20, Math.ceil((high ?? 0) / 10 + 0.3) * 10))] },
        },
        axes: [
          { ...axis, size: 24, values: (_, times) => times.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour12: false })), space: 80 },
          { ...axis, size: 42, values: (_, values) => values.map((v) => `${v} %`) },
        ],
        series: [{}, line("--cpu", 1.5), line("--memory", 1.5), edge, edge, line("--band-line", 2)],
        bands: [{ series: [3, 4], fill: themeColour("--band") }],
      },
      [[], [], [], [], [], []],
      this.box,
    );
    this.render();
  }
}
