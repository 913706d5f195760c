/* Devices: the list, by name, state, group, and what is wrong with them. */

import { html } from "../vendor/htm/standalone.module.js";
import { whole } from "../live/format.js";
import { enc, get } from "./api.js";
import { Ago, Chips, kept, linkTo, Loaded, More, Rows, State, useLoaded } from "./ui.js";

const STATES = ["", "online", "offline", "silent"];
const MARKS = ["", "waiting", "lost", "agent", "plain"];

/* Order → the column that it goes by. */
const SORTS = { name: "device", heard: "last_seen", waiting: "backlog_readings", lost: "lost_readings" };

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
  const find = (event) => {
    event.preventDefault();
    location.hash = linkTo("#/devices", params, { q: event.target.elements.q.value });
  };
  // A default value: with `value` each look at the list took away what somebody was typing.
  return html`<form class="actions bare" role="search" onSubmit=${find}><label>Name <input name="q" type="search" key=${chosen.q} defaultValue=${chosen.q ?? ""} maxlength="64" /></label><button type="submit">Find</button>
      ${chosen.stream && html`<a class="button" href=${linkTo("#/devices", params, { stream: "" })}>of ${chosen.stream} ×</a>`}</form>
    <div class="chip-rows"><${Chips} path="#/devices" params=${params} name="state" label="state" values=${STATES} counts=${counts} />
      <${Chips} path="#/devices" params=${params} name="has" label="with" values=${MARKS} counts=${counts} />
      ${(Object.keys(versions).length > 1 || chosen.version) && html`<${Chips} path="#/devices" params=${params} name="version" label="version" isName values=${["", ...Object.keys(versions).sort()]} counts=${versions} />`}
      ${Object.keys(groups.data ?? {}).length > 0 && html`<${Chips} path="#/devices" params=${params} name="group" label="group" isName values=${["", ...Object.keys(groups.data)]} counts=${groups.data} />`}</div>
    <${Loaded} loaded=${loaded} empty="No device here. One appears with its first reading: edgewake send NAME STREAM '{&quot;x&quot;: 1}'">${(page) => html`
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
      <${More} path="#/devices" params=${params} next=${page.next}>Next ${page.items.length}<//>`}<//>`;
}
