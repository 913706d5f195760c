/* One device: how it is, its numbers now and in the last minutes, where it is, what happened to it, what it is asked. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { Table } from "../live/cards.js";
import { Chart } from "../live/detail.js";
import { age, moment, whole, words } from "../live/format.js";
import { PlaceMap } from "../live/map.js";
import { api, enc, get } from "./api.js";
import { Erase } from "./erasures.js";
import { Look } from "./gaps.js";
import { History } from "./history.js";
import { useModels } from "./live_data.js";
import { Ago, bytes, Do, Facts, Loaded, Rows, State, useDraft, useLoaded } from "./ui.js";

const STREAMS_MAX = 16; /* of one question */
const STRIP_MS = 86_400_000;
const LETTERS_SHOWN = 10;

export function Device({ name }) {
  const loaded = useLoaded(() => get(`/v1/devices/${enc(name)}`), `device ${name}`);
  return html`<nav class="crumbs"><a href="#/devices">Devices</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(device) => html`
      <${Facts} of=${[
        ["state", html`<${State} state=${device.state} />`],
        ["last heard", html`<${Ago} at=${device.last_seen} />`],
        ["kind", device.agent ? `agent ${device.version || "of no known version"}` : device.via ? "behind a gateway" : "plain MQTT device"],
        ...(device.via ? behind(device) : []),
        ["waiting on it", device.backlog_readings === null ? null : `${whole(device.backlog_readings)} readings, ${bytes(device.backlog_bytes)}`],
        ["oldest not acknowledged", device.oldest_unacked_s === null ? null : duration(device.oldest_unacked_s)],
        ["lost", device.lost_readings ? `${whole(device.lost_readings)} readings` : "nothing"],
        ["its clock is off by", device.skew_ms === null ? null : `${whole(device.skew_ms)} ms`],
        ["streams", device.streams.length === 0 ? null : device.streams.map((stream, i) => html`${i > 0 && ", "}<a href=${`#/streams/${enc(stream)}`}>${stream}</a>`)],
      ]} />
      <${Presence} name=${name} />
      ${device.streams.length > 0 && html`<${Values} key=${device.streams.join()} device=${name} streams=${device.streams.slice(0, STREAMS_MAX)} />`}
      <${Note} device=${device} />
      <${History} kind="device" name=${name} />
      ${(device.agent || device.via) && html`<${Commands} device=${name} />`}
      ${device.agent && html`<${Settings} device=${name} used=${device.settings_version} />`}
      ${device.streams.length > 0 && html`<${Look} key=${name} streams=${device.streams} device=${name} />`}
      <${Refused} device=${name} />
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

/** When it was there in the last day, from what happened to it. */
function Presence({ name }) {
  const loaded = useLoaded(() => get(`/v1/history?${new URLSearchParams({ kind: "device", name, limit: 500 })}`), `presence ${name}`, 15_000);
  const now = Date.now();
  const changes = (loaded.data?.items ?? []).filter((one) => one.facts.state).toReversed();
  if (changes.length === 0) return "";
  const spans = changes.map((one, i) => ({ from: Math.max(one.at, now - STRIP_MS), to: changes[i + 1]?.at ?? now, state: one.facts.state })).filter((one) => one.to > now - STRIP_MS);
  const share = (ms) => `${(100 * ms) / STRIP_MS}%`;
  const online = spans.filter((one) => one.state === "online").reduce((sum, one) => sum + one.to - one.from, 0);
  return html`<section class="card"><h2>The last 24 hours <small>online for ${duration(online / 1000)} of what is known</small></h2>
    <div class="strip" role="img" aria-label=${`Online for ${duration(online / 1000)} of the last 24 hours, as far as it is known`}>${spans.map((one) => html`
      <i data-state=${one.state} title=${`${one.state} from ${moment(one.from)} to ${moment(one.to)}`} style=${{ left: share(one.from - now + STRIP_MS), width: share(Math.max(one.to - one.from, STRIP_MS / 800)) }}></i>`)}</div>
    <p class="strip-ends"><small>24 h ago</small><small>now</small></p></section>`;
}

/** Its latest values and its numbers over the last minutes. */
function Values({ device, streams }) {
  const { live, now, fault, isCut } = useModels({ names: streams, device });
  const models = streams.map((name) => live.streams.get(name)).filter((one) => one?.heardAt);
  return html`${fault && html`<p class="card wrong" role="alert">${fault}; what you see is of before.</p>`}
    ${models.length === 0 && html`<p class="card quiet">It sent nothing in the last 15 minutes.</p>`}
    ${isCut && html`<p class="quiet">So much came that the charts begin later than 15 minutes ago.</p>`}
    ${models.map((stream) => html`<section class="card" key=${stream.name}><h2><a href=${`#/streams/${enc(stream.name)}`}>${stream.name}</a> <small>${age(now - stream.heardAt)}</small></h2>
      <${Table} rows=${[stream.devices.get(device)]} columns=${[...stream.fields.keys()]} caption=${`Latest of ${stream.name}`} />
      ${stream.hasPlace && html`<${PlaceMap} stream=${stream} />`}</section>
      <div class="charts">${stream.shown.filter(([, field]) => field.kind === "number").map(([name, field]) => html`<section class="card" key=${name}><h2>${words(name)} <small>${stream.name}</small></h2><${Chart} steps=${field.state.steps} name=${name} /></section>`)}</div>`)}`;
}

function Note({ device }) {
  const [note, setNote] = useDraft(device.note);
  const [groups, setGroups] = useDraft(device.groups.join(" "));
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
      <label>Name, of its own list <input value=${command} onInput=${({ target }) => setCommand(target.value)} /></label> <${Do} act=${ask} disabled=${!command}>Ask<//></section>
    <${Loaded} loaded=${loaded} empty="Nothing was asked of it yet.">${({ items }) => html`<${Rows} caption="Commands" rows=${items} columns=${[
      ["name"], ["state"], ["asked_at", "asked", { view: ({ asked_at, asked_by }) => html`<${Ago} at=${asked_at} /> <small>by ${asked_by}</small>` }],
      ["answer", "answer", { view: ({ answer }) => answer?.detail || answer?.output || "–" }],
    ]} />`}<//>`;
}

/** What it was set from afar: the text, and whether it uses it. */
function Settings({ device, used }) {
  const loaded = useLoaded(() => get(`/v1/devices/${enc(device)}/config`).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  }).then((found) => ({ found })), `config ${device}`);
  return html`<${Loaded} loaded=${loaded}>${({ found }) => html`<${SettingsForm} device=${device} found=${found} used=${used} again=${loaded.again} />`}<//>`;
}

function SettingsForm({ device, found, used, again }) {
  const [text, setText, isTyped] = useDraft(found?.text ?? "");
  const [from, setFrom] = useState(0); /* the version that he began to type over */
  const version = found?.version ?? 0;
  const isOvertaken = isTyped && from !== version && text !== found?.text;
  const give = async () => {
    const made = await api("PUT", `/v1/devices/${enc(device)}/config`, { text });
    again();
    return `given as version ${made.version}; the device tries it, and goes back where it cannot`;
  };
  const isUsed = found && used === found.version;
  return html`<section class="card"><h2>Settings from afar <small>${found ? `version ${found.version}, ${isUsed ? "in use" : found.state}` : "none were given"}</small></h2>
    <label class="spoken" for="settings">Tables of the agent's configuration</label>
    <textarea id="settings" rows="5" spellcheck="false" placeholder="[logging]\nmode = ..." value=${text} onInput=${({ target }) => { if (!isTyped) setFrom(version); setText(target.value); }}></textarea>
    ${isOvertaken && html`<p class="fault" role="status">Somebody gave version ${version} meanwhile. <button type="button" onClick=${() => setText(null)}>Load it, without what I typed</button></p>`}
    ${found?.answer?.detail && html`<p class="quiet">It says: ${found.answer.detail}</p>`}
    <p class="actions"><${Do} act=${give} disabled=${text === (found?.text ?? "")}>Give<//></p></section>`;
}

function Refused({ device }) {
  const loaded = useLoaded(() => get(`/v1/dead-letters?${new URLSearchParams({ device, limit: LETTERS_SHOWN })}`), `refused ${device}`, 15_000);
  if (!loaded.data?.items.length) return "";
  return html`<h2 class="gap">What was refused of it</h2><${Loaded} loaded=${loaded}>${({ items }) => html`<${Rows} caption="Refused" rows=${items} columns=${[
    ["received_at", "when", { view: (row) => html`<a href=${`#/letters/${row.offset}`}><${Ago} at=${row.received_at} /></a>` }],
    ["reason", "reason", { view: (row) => words(row.reason) }], ["detail", "detail", { wraps: true }],
  ]} /><p><a href=${`#/letters?device=${enc(device)}`}>All of them</a></p>`}<//>`;
}
