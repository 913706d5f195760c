/* Deliveries: every event of streams to a webhook; the list with what can be done, and the form that makes one. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { api, enc, getAll } from "./api.js";
import { Ago, Do, Loaded, Rows, State, useLoaded } from "./ui.js";

const OFFERED = 12; /* streams that stand as buttons below the field; all others are typed */
const EMPTY = { name: "", streams: "", where: "", from: "latest", url: "", headers: "", events_max: 100, wait_s: 0.5 };
const CARRIED = ["select", "on_gap", "kind", "events_max", "wait_s"]; /* a PUT replaces the whole: what the form does not show goes with it as it is kept */

export const Filter = ({ streams, where }) => html`${streams.join(", ")}${where && html` <code title=${where}>${where}</code>`}`;

/** Lines of `Name: value`; none says nothing, and those of before stay. Throws Error. */
export function headersOf(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  if (lines.length === 0) return {};
  const pairs = lines.map((line, index) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`header ${index + 1}: expected Name: value`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  return { headers: Object.fromEntries(pairs) };
}

export function Deliveries() {
  const [chosen, setChosen] = useState(null);
  const typed = useState(EMPTY); /* for a new one; it survives a look at another */
  const [made, setMade] = useState([]); /* with secrets that are shown once: no other form takes them away */
  const loaded = useDeliveries();
  const row = chosen && (loaded.data?.items.find(({ id }) => id === chosen.id) ?? chosen);
  return html`<nav class="crumbs"><a href="#/clients">Clients</a> › deliveries</nav>
    <${List} loaded=${loaded} change=${setChosen} />
    <div class="gap"><${DeliveryForm} key=${chosen?.id ?? "new"} row=${row} typed=${typed} made=${made} setMade=${setMade} leave=${() => setChosen(null)} again=${loaded.again} /></div>`;
}

const useDeliveries = () => useLoaded(() => getAll("/v1/deliveries"), "deliveries");

export function DeliveryList() {
  return html`<${List} loaded=${useDeliveries()} />`;
}

/** `change`: called with a row that somebody wants to change; without it there is no button for it. Another owner's row is only tested and ended. */
function List({ loaded, change }) {
  const tested = (id) => async () => {
    const { taken, error, endpoint_host: host } = await api("POST", `/v1/deliveries/${enc(id)}/test`);
    loaded.again();
    return taken ? `taken by ${host}` : `not taken: ${error}`;
  };
  const enabled = (id) => async () => {
    await api("POST", `/v1/deliveries/${enc(id)}/enable`);
    loaded.again();
    return "goes on";
  };
  const ended = (id) => async () => {
    await api("DELETE", `/v1/deliveries/${enc(id)}`);
    loaded.again();
    return "ended";
  };
  return html`<${Loaded} loaded=${loaded} empty=${html`Nothing is delivered to a webhook. Fill in the form at <a href="#/deliveries">Deliveries</a>, or keep them in a file: <code>edgewake delivery apply FILE</code>`}>${({ items }) => html`<${Rows} caption="Deliveries" rows=${items} sorts columns=${[
    ["name"], ["streams", "delivers", { view: (row) => html`<${Filter} ...${row} />` }], ["endpoint_host", "to"],
    ["state", "state", { view: (row) => html`<${State} state=${row.state === "active" ? (row.failures ? "retrying" : "running") : row.state} />` }],
    ["events", "delivered", { number: true }], ["delivered_at", "last", { view: (row) => html`<${Ago} at=${row.delivered_at} />` }],
    ["failures", "failures", { number: true }], ["letters", "refused", { number: true }],
    ["error", "what is wrong", { wraps: true, view: (row) => row.why || row.error || "–" }],
    ["tested_at", "last test", { view: (row) => (row.tested_at ? html`${row.test_error ? html`<span title=${row.test_error}>not taken</span>` : "taken"} <small><${Ago} at=${row.tested_at} /></small>` : "–") }],
    ["id", "what to do", { view: (row) => html`<${Do} act=${tested(row.id)} label=${`Test ${row.name}`}>Test<//>
      ${change && row.is_ours && html` <button type="button" aria-label=${`Change ${row.name}`} onClick=${() => change(row)}>Change</button>`}
      ${row.is_ours && row.state !== "active" && html` <${Do} act=${enabled(row.id)} label=${`Enable ${row.name}`}>Enable<//>`}
      <${Do} danger act=${ended(row.id)} confirm=${`End the delivery ${row.name}${row.is_ours ? "" : ", which a reader made"}? Where it stands, and what its endpoint refused, is forgotten.`} label=${`End ${row.name}`}>End<//>` }],
  ]} />`}<//>`;
}

const carried = (row) => Object.fromEntries(CARRIED.map((key) => [key, row[key]]));
const formOf = (row) => ({ ...EMPTY, ...carried(row), name: row.name, streams: row.streams.join(", "), where: row.where ?? "" });

/** What the form holds, as the API takes it. An existing delivery stays where it is, and keeps what the form does not show. Throws Error. */
function deliveryOf(form, row) {
  return {
    streams: form.streams.split(",").map((one) => one.trim()).filter(Boolean),
    where: form.where || null,
    ...(row ? carried(row) : { from: form.from }),
    url: form.url,
    events_max: Number(form.events_max),
    wait_s: Number(form.wait_s),
    ...headersOf(form.headers),
  };
}

function DeliveryForm({ row, typed, made, setMade, leave, again }) {
  const changed = useState(() => row && formOf(row));
  const [form, setForm] = row ? changed : typed;
  const [fault, setFault] = useState("");
  const [isBusy, setBusy] = useState(false);
  const streams = useLoaded(() => getAll("/v1/streams"), "streams", 30_000);
  const field = (key) => ({ value: form[key], onInput: ({ target }) => setForm((before) => ({ ...before, [key]: target.value })) });
  const offered = (streams.data?.items ?? []).map(({ name }) => name).filter((name) => !form.streams.split(/[\s,]+/).includes(name)).slice(0, OFFERED);
  const keep = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFault("");
    setMade((before) => before.filter(({ secret }) => secret));
    try {
      const path = row ? `${enc(row.name)}?id=${enc(row.id)}` : enc(form.name);
      const one = await api("PUT", `/v1/deliveries/${path}`, deliveryOf(form, row));
      setMade((before) => [...before, one]);
      setForm(row ? { ...form, url: "", headers: "" } : EMPTY);
      again();
    } catch (error) {
      setFault(error.message);
    }
    setBusy(false);
  };
  return html`<form class="card rule" aria-label="Deliver to a webhook" onSubmit=${keep}>
    <h2>${row ? `Change ${row.name}` : "Deliver a stream to a webhook"} <small>every event, in order, until the endpoint has it</small></h2>
    ${!row && html`<label>Name <input required maxlength="64" placeholder="fast_cars" spellcheck=${false} autocomplete="off" ...${field("name")} /></label>`}
    <label>Streams <input required placeholder="one or more, with commas between" spellcheck=${false} autocomplete="off" ...${field("streams")} /></label>
    ${offered.length > 0 && html`<p class="hints">${offered.map((one) => html`<button type="button" key=${one} aria-label=${`Add ${one}`} onClick=${() => setForm({ ...form, streams: form.streams.trim() ? `${form.streams}, ${one}` : one })}>${one}</button> `)}</p>`}
    <label>Only where <input placeholder="all events; or e.g. speed_kmh > 50" spellcheck=${false} ...${field("where")} /></label>
    ${!row && html`<label>Begin <select aria-label="Begin" value=${form.from} onChange=${field("from").onInput}><option value="latest">with what comes from now on</option><option value="earliest">with the earliest that is kept</option></select></label>`}
    <label>Address <input required type="url" autocomplete="off" placeholder="https://example.org/hook" ...${field("url")} /></label>
    <label>Headers <textarea rows="2" autocomplete="off" spellcheck=${false} placeholder="Authorization: Bearer …" ...${field("headers")} /></label>
    <label>Events in a call <input class="short" type="number" min="1" max="500" ...${field("events_max")} /></label>
    <label>Seconds to wait for more <input class="short" type="number" min="0" max="60" step="any" ...${field("wait_s")} /></label>
    <p class="quiet">Address and headers are encrypted and never shown again${row ? ": write the address once more" : ""}. Each call is signed; the secret is shown once, when the delivery is made.</p>
    <p class="actions"><button class="primary" disabled=${isBusy}>${row ? "Replace" : "Deliver"}</button>${row && html` <button type="button" onClick=${leave}>Leave as it is</button>`}</p>
    <div role="status">${fault && html`<p class="fault">${fault}</p>`}${made.map((one) => html`<p>${one.name} is kept, to ${one.endpoint_host}.</p>${one.secret && html`<p class="made">Its secret, shown this once: <code>${one.secret}</code></p>`}`)}</div>
  </form>`;
}
