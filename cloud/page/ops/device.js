/* One device: how it is, its numbers now and in the last minutes, where it is, what happened to it, what it is asked. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { Table } from "../live/cards.js";
import { Chart } from "../live/detail.js";
import { age, called, clock, moment, unitSaid, whole, words } from "../live/format.js";
import { PlaceMap } from "../live/map.js";
import { api, enc, get } from "./api.js";
import { Erase } from "./erasures.js";
import { Look } from "./gaps.js";
import { History } from "./history.js";
import { useModels } from "./live_data.js";
import { usePast } from "./past.js";
import { spanOf } from "./range.js";
import { Ago, bytes, Do, Facts, Loaded, Rows, State, useDraft, useLoaded } from "./ui.js";

const STREAMS_SHOWN = 16; /* with their charts; each has a page of its own */
const STRIP_MS = 86_400_000;
const LETTERS_SHOWN = 10;
const GAPS_SHOWN = 100; /* of one stream, on its charts */
const GAPS_AGAIN_MS = 30_000;
const NOT_MISSING = new Set(["unknown_before", "restarted"]); /* said as gaps, and nothing is lost */
const PLACES = new Set(["lat", "lon"]); /* a map shows them */

export function Device({ name, params }) {
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
        ["be told", html`<a href=${`#/alerts?${new URLSearchParams({ new: 1, kind: "silence", device: name })}`}>when it is silent</a>`],
      ]} />
      <${LastDay} name=${name} isAgent=${device.agent} />
      ${device.streams.length > 0 && html`<${Values} key=${device.streams.join()} device=${name} streams=${device.streams.slice(0, STREAMS_SHOWN)} params=${params} />`}
      ${device.streams.length > STREAMS_SHOWN && html`<p class="quiet">${whole(device.streams.length - STREAMS_SHOWN)} more streams of it are not shown here; their names above lead to them.</p>`}
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

/** When it was there in the last day, and how many readings waited on it, from what happened to it. */
function LastDay({ name, isAgent }) {
  const loaded = useLoaded(() => get(`/v1/history?${new URLSearchParams({ kind: "device", name, limit: 500 })}`), `presence ${name}`, 15_000);
  const now = Date.now();
  const begin = now - STRIP_MS;
  const changes = (loaded.data?.items ?? []).filter((one) => one.facts.state).toReversed();
  if (changes.length === 0) return "";
  const spans = changes.map((one, i) => ({ from: Math.max(one.at, begin), to: changes[i + 1]?.at ?? now, state: one.facts.state, waiting: one.facts.backlog_readings ?? 0 })).filter((one) => one.to > begin);
  const share = (ms) => `${(100 * ms) / STRIP_MS}%`;
  const online = spans.filter((one) => one.state === "online").reduce((sum, one) => sum + one.to - one.from, 0);
  return html`<section class="card"><h2>The last 24 hours <small>online for ${duration(online / 1000)} of the ${duration((now - spans[0].from) / 1000)} that are known</small></h2>
    <div class="strip" role="img" aria-label=${`Online for ${duration(online / 1000)} of the last 24 hours, as far as it is known`}>${spans.map((one) => html`
      <i data-state=${one.state} title=${`${one.state} from ${moment(one.from)} to ${moment(one.to)}`} style=${{ left: share(one.from - begin), width: share(Math.max(one.to - one.from, STRIP_MS / 800)) }}></i>`)}</div>
    ${isAgent && html`<${Waiting} spans=${spans} begin=${begin} />`}
    <p class="strip-ends"><small>${clock(begin)}</small><small class="key">${["online", "offline", "silent"].map((state) => html`<span><i data-state=${state}></i>${state}</span>`)}</small><small>now</small></p></section>`;
}

/** How many readings waited on the device, as steps; what changed little is not told. */
function Waiting({ spans, begin }) {
  const most = spans.reduce((found, one) => (one.waiting > found.waiting ? one : found));
  const said = most.waiting ? `at most ${whole(most.waiting)} readings waited on it, at ${clock(most.from)}` : "nothing waited on it";
  const x = (at) => ((at - begin) / STRIP_MS) * 1000;
  return html`<p class="quiet">${said[0].toUpperCase()}${said.slice(1)}</p>
    ${most.waiting > 0 && html`<svg class="waiting-strip" viewBox="0 0 1000 40" preserveAspectRatio="none" role="img" aria-label=${`In the last 24 hours ${said}`}>${spans.filter((one) => one.waiting).map((one) => html`
      <rect x=${x(one.from)} width=${Math.max(x(one.to) - x(one.from), 1.5)} y=${40 - (40 * one.waiting) / most.waiting} height=${(40 * one.waiting) / most.waiting}><title>${whole(one.waiting)} readings at ${moment(one.from)}</title></rect>`)}</svg>`}`;
}

/** Its latest values, and its numbers over the chosen time, with what is missing. */
function Values({ device, streams, params }) {
  const { live, now, fault, isCut } = useModels({ names: streams, device });
  const infos = useLoaded(() => Promise.all(streams.map((name) => get(`/v1/streams/${enc(name)}`))), `fields ${streams}`, 60_000).data ?? [];
  const wanted = infos.map((one) => ({ key: one.name, source: one.name, fields: numbersOf(one), devices: [device] }));
  const past = usePast(wanted, (at) => spanOf(params, at), `${device} ${params}`);
  const { data: gaps, error: gapsFault } = useLoaded(() => gapsOf(streams, device, spanOf(params).from), `gaps ${device} ${streams} ${params}`, GAPS_AGAIN_MS);
  const { isLive } = spanOf(params);
  const span = isLive || !past.data ? undefined : [past.data.span.from, past.data.span.to];
  const shown = streams.map((name) => live.streams.get(name)).filter((one) => one && (one.heardAt || !isLive));
  return html`${fault && html`<p class="card wrong" role="alert">${fault}; what you see is of before.</p>`}
    ${past.error && !isLive && html`<p class="card wrong" role="alert">${past.error.message}</p>`}
    ${gapsFault && html`<p class="card wrong" role="alert">What is missing is not known now: ${gapsFault.message}</p>`}
    ${isLive && shown.length === 0 && html`<p class="card quiet">It sent nothing in the last 15 minutes. Choose a longer time above to see what it sent before.</p>`}
    ${isLive && isCut && html`<p class="quiet">So much came that the charts begin later than 15 minutes ago.</p>`}
    ${shown.map((stream) => {
      const info = infos.find((one) => one.name === stream.name);
      const missing = gaps?.get(stream.name) ?? [];
      const ofPast = past.data?.found.get(stream.name);
      const pastFault = past.data?.faults.get(stream.name);
      const charts = isLive ? stream.shown.filter(([, field]) => field.kind === "number").map(([name, field]) => [name, field.state.steps]) : [...(ofPast ?? [])].filter(([name, steps]) => steps.length > 0 && !PLACES.has(name));
      return html`<section class="card" key=${stream.name}><h2><a href=${`#/streams/${enc(stream.name)}`}>${stream.name}</a> <small>${stream.heardAt ? age(now - stream.heardAt) : "nothing lately"}</small></h2>
      ${stream.heardAt && html`<${Table} rows=${[stream.devices.get(device)]} columns=${[...stream.fields.keys()]} unitOf=${(field) => stream.unitOf(field)} caption=${`Latest of ${stream.name}`} isStacked />`}
      ${missing.length > 0 && html`<p class="gap-key"><i></i>${gapsSaid(missing)}</p>`}
      ${stream.hasPlace && html`<${PlaceMap} stream=${stream} />`}
      ${!isLive && pastFault && html`<p class="fault" role="alert">${pastFault.message}</p>`}
      ${!isLive && past.data && !pastFault && charts.length === 0 && html`<p class="quiet">It sent no number on it in this time.</p>`}
      ${!isLive && !past.data && !past.error && html`<p class="quiet" role="status">loading…</p>`}</section>
      <div class="charts">${charts.map(([name, steps]) => html`<section class="card" key=${name}><h2>${called(name, unitSaid(info?.fields[name]?.unit ?? ""))} <small>${[unitSaid(info?.fields[name]?.unit ?? ""), stream.name].filter(Boolean).join(", ")} · <a href=${`#/boards?${new URLSearchParams({ source: stream.name, field: name, device })}`} aria-label=${`Put ${words(name)} of ${stream.name} on a board`}>put on a board</a> · <a href=${`#/alerts?${new URLSearchParams({ new: 1, stream: stream.name, field: name, device })}`} aria-label=${`Alert on ${words(name)} of ${stream.name}`}>alert on this</a></small></h2>
        <${Chart} steps=${steps} name=${name} span=${span} gaps=${missing.map((one) => [one.before_t ?? one.at, one.after_t])} /></section>`)}</div>`;
    })}`;
}

const numbersOf = ({ fields }) => Object.entries(fields).filter(([, { type }]) => type === "number").map(([name]) => name);

/** Stream → its gaps of a device since then that may be seen on a chart. One after the other: each reads Kafka, and who asks may have only some under way. */
async function gapsOf(streams, device, since) {
  const query = new URLSearchParams({ device, since: Math.round(since), limit: GAPS_SHOWN });
  const found = new Map();
  for (const name of streams) {
    const { items } = await get(`/v1/streams/${enc(name)}/gaps?${query}`);
    found.set(name, items.filter((one) => !NOT_MISSING.has(one.reason)));
  }
  return found;
}

/** `2 gaps in this time: quota (14 readings), open`. */
function gapsSaid(gaps) {
  const counts = new Map();
  for (const { reason, count } of gaps) counts.set(reason, (counts.get(reason) ?? 0) + count);
  const reasons = [...counts].map(([reason, count]) => `${words(reason)}${count ? ` (${whole(count)} ${count === 1 ? "reading" : "readings"})` : ""}`);
  return `${gaps.length} ${gaps.length === 1 ? "gap" : "gaps"} in this time: ${reasons.join(", ")}`;
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
    <textarea id="settings" rows="5" spellcheck=${false} placeholder="[logging]\nmode = ..." value=${text} onInput=${({ target }) => { if (!isTyped) setFrom(version); setText(target.value); }}></textarea>
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
