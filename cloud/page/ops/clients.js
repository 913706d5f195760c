/* Clients: who reads at the access servers now, who sleeps, and ending one; what devices ask for. */

import { html } from "../vendor/htm/standalone.module.js";
import { whole } from "../live/format.js";
import { api, enc, get, getAll } from "./api.js";
import { DeliveryList, Filter } from "./deliveries.js";
import { Ago, bytes, Chips, Do, kept, Loaded, More, Rows, State, useLoaded } from "./ui.js";

const STATES = ["", "behind", "live", "waiting"];
const KINDS = { sse: "event stream", websocket: "WebSocket", page: "one answer" };

export function Clients({ params }) {
  return html`<${Connected} params=${params} /><${Sleeping} /><h2 class="gap">Deliveries</h2><p class="actions bare"><a class="button" href="#/deliveries">Deliver a stream to a webhook</a></p><${DeliveryList} /><${Groups} /><${Requests} />`;
}

function Connected({ params }) {
  const chosen = kept(params, ["state", "stream", "principal", "after"]);
  const loaded = useLoaded(() => get(`/v1/clients?${new URLSearchParams({ limit: 100, ...chosen })}`), `clients ${JSON.stringify(chosen)}`);
  const ended = (id) => async () => {
    const reason = prompt("What is the client told? It may come again.", "");
    if (reason === null) return "not ended";
    await api("DELETE", `/v1/clients/${enc(id)}?${new URLSearchParams({ reason })}`);
    loaded.again();
    return "ended";
  };
  return html`<${Chips} path="#/clients" params=${params} name="state" values=${STATES} />
    <h2>Reading now</h2>
    <${Loaded} loaded=${loaded} empty="Nobody reads here now. Somebody who opens the Live page, or runs edgewake tail STREAM, appears within three seconds.">${(page) => html`
      <p class="quiet">${page.total} ${page.total === 1 ? "client" : "clients"} · ${page.servers.map((one) => `${one.server} serves ${one.total}${one.total > one.told ? `, of whom ${one.told} are listed` : ""}`).join(" · ")}</p>
      <${Rows} caption="Clients that read" rows=${page.items} columns=${[
        ["principal", "who", { view: (row) => html`<a href=${`#/clients?principal=${enc(row.principal)}`}>${row.principal}</a> <small>${row.address}</small>` }],
        ["streams", "reads", { view: (row) => html`${row.streams.join(", ") || "–"}${row.where && html` <code title=${row.where}>${row.where}</code>`}` }],
        ["state", "state", { view: (row) => html`<${State} state=${row.state} />` }],
        ["behind_records", "behind", { number: true, view: (row) => html`${row.behind_records ? html`${whole(row.behind_records)} <small>${row.behind_s.toFixed(1)} s</small>` : "–"}${row.policy && row.policy !== "wait" && html` <small>${row.policy}</small>`}` }],
        ["sent_bytes", "sent", { number: true, view: (row) => bytes(row.sent_bytes) }],
        ["opened_at", "since", { view: (row) => html`<${Ago} at=${row.opened_at} />` }],
        ["protocol", "how", { view: (row) => html`<span title=${`while it takes less than there is: ${row.slow}`}>${KINDS[row.protocol]}</span> <small>${row.server}</small>` }],
        ["id", "what to do", { view: (row) => html`<${Do} danger act=${ended(row.id)} label=${`End ${row.principal} ${row.id}`}>End<//>` }],
      ]} />
      <${More} path="#/clients" params=${params} next=${page.next} />`}<//>`;
}

function Sleeping() {
  const loaded = useLoaded(() => getAll("/v1/leases"), "leases");
  const ended = (id) => async () => {
    await api("DELETE", `/v1/leases/${enc(id)}`);
    loaded.again();
    return "ended";
  };
  const woken = (id) => async () => {
    const { taken, lease } = await api("POST", `/v1/leases/${enc(id)}/wake`);
    loaded.again();
    return taken ? `taken by ${lease.endpoint}` : `${lease.endpoint} did not take it; it is called again`;
  };
  return html`<h2 class="gap">Sleeping</h2>
    <${Loaded} loaded=${loaded} empty="No client sleeps. One that leaves a lease with the push proxy before it sleeps is listed here.">${({ items, total }) => html`<${Rows} caption="Sleeping clients" rows=${items} total=${total} finds=${(row) => `${row.id} ${row.streams.join(" ")} ${row.endpoint}`} sorts columns=${[
      ["id", "lease"], ["streams", "waits for", { view: (row) => html`${row.streams.join(", ")}${row.where && html` <code title=${row.where}>${row.where}</code>`}` }],
      ["state", "state", { view: (row) => html`<${State} state=${row.disabled ? "disabled" : row.state} />` }],
      ["count", "unseen", { number: true }], ["wakes", "woken", { number: true }], ["failures", "failures", { number: true }],
      ["last_wake_at", "last woken", { view: (row) => html`<${Ago} at=${row.last_wake_at} />` }],
      ["due_at", "next", { view: (row) => (row.due_at ? html`<${Ago} at=${row.due_at} />` : row.disabled || "–") }],
      ["endpoint", "is woken at"],
      ["", "what to do", { view: (row) => html`<${Do} act=${woken(row.id)} label=${`Wake ${row.id} now`}>Wake now<//> <${Do} danger act=${ended(row.id)} confirm=${`End the lease ${row.id}? Its client is not woken any more.`} label=${`End lease ${row.id}`}>End<//>` }],
    ]} />`}<//>`;
}

/** Clients that share streams: each event goes to one of them. */
function Groups() {
  const loaded = useLoaded(() => getAll("/v1/shares"), "groups");
  const ended = (id) => async () => {
    await api("DELETE", `/v1/shares/${enc(id)}`);
    loaded.again();
    return "ended";
  };
  return html`<h2 class="gap">Groups that share streams</h2>
    <${Loaded} loaded=${loaded} empty="No clients share a stream.">${({ items, total }) => html`<${Rows} caption="Groups" rows=${items} total=${total} finds=${(row) => `${row.name} ${row.streams.join(" ")}`} sorts columns=${[
      ["name"], ["streams", "share", { view: (row) => html`<${Filter} ...${row} />` }],
      ["held", "taken, not done", { number: true }], ["given_most", "given most often", { number: true }], ["events", "done", { number: true }],
      ["created_at", "since", { view: (row) => html`<${Ago} at=${row.created_at} />` }],
      ["id", "what to do", { view: (row) => html`<${Do} danger act=${ended(row.id)} confirm=${`End the group ${row.name}? Where it stands is forgotten.`} label=${`End group ${row.name}`}>End<//>` }],
    ]} />`}<//>`;
}

function Requests() {
  const loaded = useLoaded(() => getAll("/v1/requests"), "requests");
  return html`<h2 class="gap">Requests of devices</h2>
    <${Loaded} loaded=${loaded} empty="No device asks for anything.">${({ items, total }) => html`<${Rows} caption="Requests" rows=${items} total=${total} finds=${(row) => `${row.device} ${row.name}`} sorts columns=${[
      ["device", "device", { view: ({ device }) => html`<a href=${`#/devices/${enc(device)}`}>${device}</a>` }], ["name"], ["state"],
      ["received_at", "asked", { view: (row) => html`<${Ago} at=${row.received_at} />` }],
    ]} />`}<//>`;
}
