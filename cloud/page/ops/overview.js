/* How the system is: what needs attention first, then what there is. */

import { html } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { value } from "../live/format.js";
import { enc, get } from "./api.js";
import { Ago, Loaded, Rows, State, useLoaded } from "./ui.js";

const LINKS = {
  query: (name) => `#/queries/${enc(name)}`,
  dead_letters: (name) => `#/letters?reason=${enc(name)}`,
  alert: (name) => `#/alerts/${enc(name)}`,
  lease: () => "#/clients",
  part: () => "#/",
  operations: () => "#/",
};

export function Overview() {
  const loaded = useLoaded(() => get("/v1/overview"), "overview");
  return html`<${Loaded} loaded=${loaded}>${(found) => html`
    <section class=${`card ${found.problems.length ? "wrong" : "well"}`} aria-label="Needs attention">
      ${found.problems.length === 0
        ? html`<p class="all-well"><i class="dot" data-state="well"></i>All is well.</p>`
        : html`<h2>Needs attention</h2><ul class="problems">${found.problems.map(({ kind, name, text }) => html`<li><a href=${LINKS[kind](name)}>${text}</a></li>`)}</ul>`}
    </section>
    <div class="tiles-row">
      <${Tile} label="records a second" figure=${value(found.records_per_s)} href="#/streams" />
      <${Tile} label="devices online" figure=${found.devices.online} beside=${`${found.devices.offline} offline · ${found.devices.silent} silent`} href="#/devices" />
      <${Tile} label="streams" figure=${found.streams} href="#/streams" />
      <${Tile} label="queries running" figure=${found.queries.running ?? 0} beside=${others(found.queries)} href="#/queries" />
      <${Tile} label="sleeping clients" figure=${found.leases} href="#/clients" />
      <${Tile} label="refused in this hour" figure=${Object.values(found.dead_letters).reduce((sum, n) => sum + n, 0)} href="#/letters" />
    </div>
    ${found.parts.length === 0 && html`<p class="card quiet">No supervisor tells of parts here: <code>edgewake up</code> does.</p>`}
    ${found.parts.length > 0 && html`<${Rows} caption="Parts" rows=${found.parts.map((part) => ({ ...part, name: part.part }))} columns=${[
      ["part"],
      ["state", "state", { view: ({ state }) => html`<${State} state=${state} />` }],
      ["uptime_s", "up", { number: true, view: ({ uptime_s }) => duration(uptime_s) }],
      ["restarts", "restarts", { number: true }],
      ["cpu_percent", "processor %", { number: true }],
      ["rss_mib", "memory MiB", { number: true }],
      ["seen_at", "seen", { view: ({ seen_at }) => html`<${Ago} at=${seen_at} />` }],
    ]} />`}`}<//>`;
}

const others = (states) => Object.entries(states).filter(([state]) => state !== "running").map(([state, n]) => `${n} ${state}`).join(" · ");

const Tile = ({ label, figure, beside, href }) => html`<a class="card tile" href=${href}><b class="figure">${figure}</b><span>${label}</span><small>${beside || "\u00a0"}</small></a>`;
