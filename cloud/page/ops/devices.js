/* Devices: the list by name or state, and one of them with its settings, its commands and what it asks. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { api, enc, get } from "./api.js";
import { Erase } from "./erasures.js";
import { History } from "./history.js";
import { Ago, bytes, Do, Facts, Loaded, Rows, State, useLoaded } from "./ui.js";

const STATES = ["online", "offline", "silent"];

export function Devices({ params }) {
  const state = params.get("state") ?? "";
  const after = params.get("after") ?? "";
  const q = params.get("q") ?? "";
  const group = params.get("group") ?? "";
  const kept = { ...(state && { state }), ...(q && { q }), ...(group && { group }) };
  const query = new URLSearchParams({ limit: 100, ...kept, ...(after && { after }) });
  const groups = useLoaded(() => get("/v1/groups"), "groups");
  const loaded = useLoaded(() => get(`/v1/devices?${query}`), `devices ${query}`);
  const link = (to) => `#/devices?${new URLSearchParams(to)}`;
  const find = (event) => {
    event.preventDefault();
    location.hash = link({ ...kept, q: event.target.elements.q.value });
  };
  return html`<form class="actions" role="search" onSubmit=${find}><label>Name <input name="q" value=${q} maxlength="64" /></label><button type="submit">Find</button></form>
    ${Object.keys(groups.data ?? {}).length > 0 && html`<p class="chips" role="group" aria-label="Group">
      ${Object.entries(groups.data).map(([one, n]) => html`<a href=${link({ ...kept, group: one === group ? "" : one })} aria-current=${one === group ? "true" : "false"}>${one} <small>${n}</small></a>`)}</p>`}
    <p class="chips" role="group" aria-label="State">
      <a href=${link({ ...kept, state: "" })} aria-current=${state === "" ? "true" : "false"}>all</a>
      ${STATES.map((one) => html`<a href=${link({ ...kept, state: one })} aria-current=${state === one ? "true" : "false"}>${one}</a>`)}
    </p>
    <${Loaded} loaded=${loaded} empty="No device here. One appears with its first reading: edgewake send NAME STREAM '{&quot;x&quot;: 1}'">${(page) => html`
      <p class="quiet">${page.total} ${page.total === 1 ? "device" : "devices"}</p>
      <${Rows} caption="Devices" rows=${page.items} columns=${[
        ["device", "device", { view: ({ device }) => html`<a href=${`#/devices/${enc(device)}`}>${device}</a>` }],
        ["state", "state", { view: (row) => html`<${State} state=${row.state} />` }],
        ["last_seen", "last heard", { view: ({ last_seen }) => html`<${Ago} at=${last_seen} />` }],
        ["streams", "streams", { view: ({ streams }) => streams.join(", ") || "–" }],
        ["backlog_readings", "waiting", { number: true }],
        ["lost_readings", "lost", { number: true }],
        ["version", "version", { view: ({ agent, version, via }) => (agent ? version || "–" : via ? html`behind <a href=${`#/devices/${enc(via)}`}>${via}</a>` : "plain") }],
      ]} />
      ${page.next && html`<p><a href=${link({ ...kept, after: page.next })}>Next ${page.items.length}</a></p>`}`}<//>`;
}

export function Device({ name }) {
  const loaded = useLoaded(() => get(`/v1/devices/${enc(name)}`), `device ${name}`);
  return html`<nav class="crumbs"><a href="#/devices">Devices</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(device) => html`
      <${Facts} of=${[
        ["state", html`<${State} state=${device.state} />`],
        ["last heard", html`<${Ago} at=${device.last_seen} />`],
        ["kind", device.agent ? `agent ${device.version}` : device.via ? "behind a gateway" : "plain MQTT device"],
        ...(device.via ? behind(device) : []),
        ["waiting on it", device.backlog_readings === null ? null : `${device.backlog_readings} readings, ${bytes(device.backlog_bytes)}`],
        ["oldest not acknowledged", device.oldest_unacked_s === null ? null : duration(device.oldest_unacked_s)],
        ["lost", `${device.lost_readings} readings`],
        ["its clock is off by", device.skew_ms === null ? null : `${device.skew_ms} ms`],
        ["streams", device.streams.map((stream, i) => html`${i > 0 && ", "}<a href=${`#/streams/${enc(stream)}`}>${stream}</a>`)],
      ]} />
      <${Note} device=${device} />
      <${History} kind="device" name=${name} />
      ${(device.agent || device.via) && html`<${Commands} device=${name} />`}
      <section class="card"><h2>Forget it</h2><p class="quiet">Its readings stay. It is listed again when it sends again.</p>
        <${Do} danger act=${() => api("DELETE", `/v1/devices/${enc(name)}`)} confirm=${`Forget what is known of ${name}?`} done="forgotten">Forget ${name}<//></section>
      <${Erase} name=${name} what="All that it has sent until now, in all streams." ask=${() => `/v1/devices/${enc(name)}/readings`} />`}<//>`;
}

/** What there is to say of a thing behind a gateway. */
const behind = ({ via, former, reason }) => [
  ["gateway", html`<a href=${`#/devices/${enc(via)}`}>${via}</a>`],
  ["came before by", former.join(", ") || null],
  ["silent because", reason || null],
];

function Note({ device }) {
  const [note, setNote] = useState(device.note);
  const [groups, setGroups] = useState(device.groups.join(" "));
  const keep = async () => {
    await api("PUT", `/v1/devices/${enc(device.device)}/note`, { note, groups: groups.split(/[\s,]+/).filter(Boolean) });
    return "kept";
  };
  return html`<section class="card"><h2>Note and groups</h2>
    <p><label>Note <textarea rows="2" maxlength="1000" value=${note} onInput=${({ target }) => setNote(target.value)}></textarea></label></p>
    <p class="actions"><label>Groups <input value=${groups} placeholder="hall_3 pumps" onInput=${({ target }) => setGroups(target.value)} /></label><${Do} act=${keep}>Keep<//></p></section>`;
}

function Commands({ device }) {
  const [command, setCommand] = useState("");
  const loaded = useLoaded(() => get(`/v1/devices/${enc(device)}/commands`), `commands ${device}`);
  const ask = async () => {
    await api("POST", `/v1/devices/${enc(device)}/commands`, { name: command });
    loaded.again();
    return "asked; its answer comes below";
  };
  return html`<section class="card"><h2>Commands</h2>
      <label>Name, of its own list <input value=${command} onInput=${({ target }) => setCommand(target.value)} /></label> <${Do} act=${ask}>Ask<//></section>
    <${Loaded} loaded=${loaded} empty="Nothing was asked of it yet.">${({ items }) => html`<${Rows} caption="Commands" rows=${items} columns=${[
      ["name"], ["state"], ["asked_at", "asked", { view: ({ asked_at }) => html`<${Ago} at=${asked_at} />` }], ["detail"],
    ]} />`}<//>`;
}
