/* Devices: the list, by name, state, group, and what is wrong with them. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { counted, whole } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { Ago, Chips, Do, kept, linkTo, Loaded, More, Rows, State, useDraft, useLoaded } from "./ui.js";

const STATES = ["", "online", "offline", "silent"];
const MARKS = ["", "waiting", "lost", "agent", "plain"];

/* Order → the column that it goes by. */
const SORTS = { name: "device", heard: "last_seen", waiting: "backlog_readings", lost: "lost_readings" };

const ASKED_MAX = 500; /* devices that one press asks */

/** What is chosen, without where the page begins and its order. */
const without = ({ after, sort, ...chosen }) => chosen;

function sortLink(params, column) {
  const sort = Object.keys(SORTS).find((one) => SORTS[one] === column);
  return sort && linkTo("#/devices", params, { sort: sort === "name" ? "" : sort });
}

export function Devices({ params }) {
  const chosen = kept(params, ["state", "q", "group", "has", "stream", "version", "sort", "after"]);
  const groups = useLoaded(() => get("/v1/groups"), "groups");
  const query = new URLSearchParams({ limit: 100, ...chosen });
  const loaded = useLoaded(() => get(`/v1/devices?${query}`), `devices ${query}`);
  const { counts = {}, versions = {} } = loaded.data ?? {};
  const [name, setName] = useDraft(chosen.q ?? "");
  const find = (event) => {
    event.preventDefault();
    location.hash = linkTo("#/devices", params, { q: name });
  };
  return html`<form class="actions bare" role="search" onSubmit=${find}><label>Name <input type="search" value=${name} maxlength="64" onInput=${({ target }) => setName(target.value)} /></label><button type="submit">Find</button>
      <a class="button" href="#/enrolment">Let devices in</a>
      ${chosen.stream && html`<a class="button" href=${linkTo("#/devices", params, { stream: "" })}>of ${chosen.stream} ×</a>`}</form>
    <div class="chip-rows"><${Chips} path="#/devices" params=${params} name="state" label="state" values=${STATES} counts=${counts} />
      <${Chips} path="#/devices" params=${params} name="has" label="with" values=${MARKS} counts=${counts} />
      ${(Object.keys(versions).length > 1 || chosen.version) && html`<${Chips} path="#/devices" params=${params} name="version" label="version" isName values=${["", ...Object.keys(versions).sort()]} counts=${versions} />`}
      ${Object.keys(groups.data ?? {}).length > 0 && html`<${Chips} path="#/devices" params=${params} name="group" label="group" isName values=${["", ...Object.keys(groups.data)]} counts=${groups.data} />`}</div>
    <${Loaded} loaded=${loaded} empty=${html`No device here. One appears with its first reading: <code>edgewake send NAME STREAM '{"x": 1}'</code>, or <a href="#/enrolment">let devices in</a>.`}>${(page) => html`
      <p class="quiet">${whole(page.total)} ${page.total === 1 ? "device" : "devices"}</p>
      <${Rows} caption="Devices" rows=${page.items} order=${{ by: SORTS[chosen.sort ?? "name"], link: (column) => sortLink(params, column) }} columns=${[
        ["device", "device", { view: ({ device }) => html`<a href=${`#/devices/${enc(device)}`}>${device}</a>` }],
        ["state", "state", { view: (row) => html`<${State} state=${row.state} />` }],
        ["last_seen", "last heard", { view: ({ last_seen }) => html`<${Ago} at=${last_seen} />` }],
        ["streams", "streams", { view: ({ streams }) => streams.join(", ") || "–" }],
        ["backlog_readings", "waiting", { number: true }],
        ["lost_readings", "lost", { number: true }],
        ["version", "version", { view: ({ agent, version, via }) => (agent ? version || "–" : via ? html`behind <a href=${`#/devices/${enc(via)}`}>${via}</a>` : "plain") }],
        ["groups", "groups", { view: ({ groups: of }) => of.join(", ") || "–" }],
      ]} />
      <${AskAll} chosen=${without(chosen)} />
      <${More} path="#/devices" params=${params} next=${page.next}>Next ${page.items.length}<//>`}<//>`;
}

/** Every device of this choice that takes commands, page after page. */
async function takers(chosen) {
  const found = [];
  let after = "";
  do {
    const page = await get(`/v1/devices?${new URLSearchParams({ limit: 500, ...chosen, ...(after && { after }) })}`);
    found.push(...page.items.filter((one) => one.agent || one.via).map((one) => one.device));
    after = page.next;
  } while (after && found.length <= ASKED_MAX);
  return found;
}

/** One command for all that are chosen; what each answers stands on its page. */
function AskAll({ chosen }) {
  const [command, setCommand] = useState("");
  const ask = async () => {
    const devices = await takers(chosen);
    if (devices.length === 0) return "none of these has an agent, so none takes commands";
    if (devices.length > ASKED_MAX) return `these are more than ${ASKED_MAX}: choose fewer`;
    if (!confirm(`Ask ${counted(devices.length, "devices")} for ${command}?`)) return "";
    const refusals = [];
    for (const device of devices) await api("POST", `/v1/devices/${enc(device)}/commands`, { name: command }).catch((error) => refusals.push(`${device}: ${error.message}`));
    const asked = `${counted(devices.length - refusals.length, "devices")} asked; what each answers stands on its page`;
    return refusals.length ? `${asked}. ${counted(refusals.length, "devices")} not: ${refusals[0]}` : asked;
  };
  return html`<details class="card"><summary>Ask all of these</summary><p class="actions"><label>Command, of each device's own list <input value=${command} maxlength="64" spellcheck=${false} onInput=${({ target }) => setCommand(target.value)} /></label>
    <${Do} act=${ask} disabled=${!command} label="Ask all of these devices">Ask<//></p></details>`;
}
