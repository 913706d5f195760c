/* How the system is: what needs attention first, then what there is. */

import { html } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { counted, local, rate, value, whole } from "../live/format.js";
import { get } from "./api.js";
import { PAGES } from "./history.js";
import { Lines } from "./lines.js";
import { stateOf } from "./top.js";
import { Ago, Loaded, Rows, State, useLoaded } from "./ui.js";

export function Overview() {
  const loaded = useLoaded(() => get("/v1/overview"), "overview");
  return html`<${Loaded} loaded=${loaded}>${(found) => html`
    <section class=${`card ${CARDS[stateOf(found.problems)]}`} aria-label="Needs attention">
      ${found.problems.length === 0
        ? html`<p class="all-well"><i class="dot" data-state="well"></i>All is well.</p>`
        : html`<h2>Needs attention</h2><ul class="problems">${found.problems.map(({ kind, name, text }) => html`<li><i class="dot" data-state=${stateOf([{ kind }])}></i> <a href=${PAGES[kind]?.(name) ?? "#/"}>${local(text)}</a></li>`)}</ul><p><a href="#/history">Since when, and who has it</a></p>`}
    </section>
    <${Chain} hops=${found.hops} />
    ${found.faults && html`<p class="card"><a href="#/faults">Faults</a>: kill parts, freeze them, cut links, and see what is lost, twice or wrong.</p>`}
    ${found.flow.length > 1 && html`<${Flow} flow=${found.flow} />`}
    <div class="tiles-row">
      <${Tile} label="readings a second" figure=${value(found.readings_per_s)} beside=${`${value(found.records_per_s)} records`} href="#/streams" />
      <${Tile} label="devices online" figure=${found.devices.online} beside=${`${found.devices.offline} offline · ${found.devices.silent} silent`} href="#/devices" />
      <${Tile} label="streams" figure=${found.streams} href="#/streams" />
      <${Tile} label="queries running" figure=${found.queries.running ?? 0} beside=${others(found.queries)} href="#/queries" />
      <${Tile} label="clients reading" figure=${found.clients} beside=${`${found.leases} sleeping`} href="#/clients" />
      <${Tile} label="refused in this hour" figure=${Object.values(found.dead_letters).reduce((sum, n) => sum + n, 0)} href="#/letters" />
    </div>
    ${found.parts.length === 0 && html`<p class="card quiet">No part has told of itself yet: each does every five seconds, and the supervisor of <code>edgewake up</code> for all of its own.</p>`}
    ${found.parts.length > 0 && html`<${Rows} caption="Parts" sorts rows=${found.parts.map((part) => ({ ...part, name: part.part }))} columns=${[
      ["part"],
      ["state", "state", { view: ({ state, detail }) => html`<span title=${detail}><${State} state=${state} /></span>` }],
      ...(found.parts.some(({ host }) => host) ? [["host", "machine", { view: ({ host }) => host ?? "–" }]] : []),
      ["uptime_s", "up", { number: true, view: ({ uptime_s }) => duration(uptime_s) }],
      ["restarts", "restarts", { number: true }],
      ["cpu_percent", "processor %", { number: true }],
      ["rss_mib", "memory MiB", { number: true }],
      ["version", "version", { view: (row) => row.version || "–" }],
      ["seen_at", "seen", { view: ({ seen_at }) => html`<${Ago} at=${seen_at} />` }],
    ]} />`}
    <${Topics} />
    <p class="quiet">Edgewake ${found.version}. Who changed what: <a href="#/audit">audit</a>. What was lost on the way: <a href="#/gaps">gaps</a>.</p>`}<//>`;
}

const CARDS = { well: "well", late: "wrong", bad: "bad" };

const HOPS = { devices: ["devices", "online", "#/devices"], bridge: ["bridge", "running", "#/letters"], sequencer: ["sequencer", "running", "#/streams"],
  analysis: ["analysis", "queries", "#/queries"], access: ["access", "clients", "#/clients"], push: ["push", "leases", "#/clients"] };

/** The way of a reading, with what goes through each part and what waits for it. */
const Chain = ({ hops }) => html`<ol class="card chain" aria-label="The way of a reading">${hops.map((hop) => {
  const [title, what, href] = HOPS[hop.name];
  const waits = waitsSaid(hop);
  return html`<li><a href=${href}><span class="state"><i class="dot" data-state=${{ well: "well", soon: "late", bad: "bad" }[hop.state] ?? "off"}></i>${title}</span>
    <b>${hop.per_s === null ? counted(hop.count, what) : rate(hop.per_s)}</b><small>${hop.per_s === null ? "" : counted(hop.count, what)}${waits && html`${hop.per_s === null ? "" : " · "}<span title=${hop.behind == null ? null : `${counted(hop.behind, "records")} wait`}>${waits}</span>`}\u00a0</small></a></li>`;
})}</ol>`;

/** How long what waits takes; how much waits where nothing moves, since nobody knows how long that takes. */
function waitsSaid({ delay_s: delay, behind }) {
  if (delay != null) return delaySaid(delay);
  return behind > 0 ? `${whole(behind)} behind` : "";
}

/** How long what waits takes: to a tenth below ten seconds. */
const delaySaid = (s) => (s < 0.1 ? "no delay" : `${s < 10 ? s.toFixed(1) : Math.round(s)} s behind`);

const FLOWS = [["received", 1, "--cpu", []], ["passed on", 2, "--memory", [6, 4]]];

/** Records that came and records that were passed on, over the last quarter of an hour. */
function Flow({ flow }) {
  const now = Date.now();
  const lines = FLOWS.map(([title, index, colour, dash]) => ({ title, colour, dash, points: flow.map((one) => [now - one[0] * 1000, one[index]]) }));
  return html`<section class="card"><h2>Records a second <small>the last quarter of an hour</small></h2><${Lines} lines=${lines} label="Records a second, received and passed on" /></section>`;
}

function Topics() {
  const loaded = useLoaded(() => get("/v1/topics"), "topics", 15_000);
  return html`<details class="card"><summary>Topics of Kafka <small>${loaded.data?.length ?? ""}</small></summary><${Loaded} loaded=${loaded}>${(rows) => html`<${Rows} caption="Topics" rows=${rows} sorts columns=${[
    ["name", "topic", { view: ({ name }) => html`<code>${name}</code>` }], ["partitions", "partitions", { number: true }],
    ["records", "records kept", { number: true, view: (row) => whole(row.records) }], ["written", "ever written", { number: true, view: (row) => whole(row.written) }],
  ]} />`}<//></details>`;
}

const others = (states) => Object.entries(states).filter(([state]) => state !== "running").map(([state, n]) => `${n} ${state}`).join(" · ");

const Tile = ({ label, figure, beside, href }) => html`<a class="card tile" href=${href}><b class="figure">${figure}</b><span>${label}</span><small>${beside || "\u00a0"}</small></a>`;
