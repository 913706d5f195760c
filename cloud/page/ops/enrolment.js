/* Enrolment: how devices come in by themselves with a code, which codes are good, who has what, and taking it back. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { counted, moment, whole } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { Do, Line, Loaded, Rows, useDraft, useLoaded } from "./ui.js";

const HOUR_S = 3_600;
const SHOWN = 200; /* devices of the table; a part of a name finds the others */

export function Enrolment() {
  const codes = useLoaded(() => get("/v1/claims"), "claims");
  const holders = useLoaded(() => get("/v1/credentials"), "credentials", 10_000);
  const withdraw = (id) => async () => {
    await api("DELETE", `/v1/claims/${enc(id)}`);
    codes.again();
    return "ended";
  };
  return html`<nav class="crumbs"><a href="#/devices">Devices</a> › let devices in</nav>
    <${Loaded} loaded=${codes} empty="">${({ items }) => html`
      <${NewCode} again=${codes.again} />
      <${OnePassword} again=${holders.again} />
      <h2 class="gap">Codes that are good</h2>
      ${items.length === 0 ? html`<p class="card quiet">No code is good now. Make one above: a device that shows it comes in without anybody's doing.</p>`
        : html`<${Rows} caption="Codes" rows=${items} sorts columns=${[
          ["id", "code", { view: ({ id }) => html`<code>${id}</code>` }],
          ["left", "devices left", { number: true }],
          ["prefix", "names begin with", { view: ({ prefix }) => prefix || "anything" }],
          ["until", "good until", { view: ({ until }) => moment(until) }],
          ["", "what to do", { view: ({ id }) => html`<${Do} danger act=${withdraw(id)} confirm="End this code? Devices that came in by it stay." label=${`End the code ${id}`}>End<//>` }],
        ]} />`}
      <${Holders} loaded=${holders} />`}<//>`;
}

function NewCode({ again }) {
  const [made, setMade] = useState(null);
  const [count, setCount] = useState("1");
  const [hours, setHours] = useState("24");
  const [prefix, setPrefix] = useState("");
  const make = async () => {
    setMade({ ...(await api("POST", "/v1/claims", { count: Number(count), life_s: Number(hours) * HOUR_S, prefix })), prefix });
    again();
    return "";
  };
  return html`<section class="card"><h2>A code for new devices <small>each that shows it gets a password or certificate of its own</small></h2>
    <p class="actions"><label>Devices <input class="short" type="number" min="1" max="10000" value=${count} onInput=${({ target }) => setCount(target.value)} /></label>
      <label>good for hours <input class="short" type="number" min="0.1" max="720" step="any" value=${hours} onInput=${({ target }) => setHours(target.value)} /></label>
      <label>their names begin with <input value=${prefix} maxlength="64" placeholder="anything" spellcheck=${false} autocomplete="off" onInput=${({ target }) => setPrefix(target.value)} /></label>
      <${Do} act=${make} disabled=${!count || !hours}>Make a code<//></p>
    ${made && html`<div class="made" role="status"><p class="lead"><b>${made.code}</b></p>
      <p class="quiet">For ${counted(made.count, "devices")} until ${moment(made.until)}. It is shown this once.</p>
      <p>On the device:</p><p class="ways-line"><${Line} text=${agentLine(made)} label="Copy the line for the device" /></p></div>`}</section>`;
}

/** The line that brings an agent in. */
export function agentLine({ code, prefix, fingerprint, server }) {
  const proof = fingerprint ? ` --fingerprint ${fingerprint}` : "";
  return `edgewake-agent init --device ${prefix}1 --claim ${code}${proof} --server ${server || location.origin} --data-dir edgewake-data agent.toml`;
}

/** For a device that speaks plain MQTT or HTTP, and cannot show a code. */
function OnePassword({ again }) {
  const [name, setName] = useState("");
  const [given, setGiven] = useState(null);
  const give = async () => {
    setGiven(await api("POST", "/v1/credentials", { devices: [name] }));
    again();
    return "";
  };
  const ways = given ? [
    given.broker && `${given.broker.host}, port ${given.broker.port}, by MQTT, its name as user name`,
    given.http && `${given.http} by HTTP`,
  ].filter(Boolean) : [];
  return html`<details class="card"><summary>A password for one device</summary>
    <p class="actions"><label>Its name <input value=${name} maxlength="64" spellcheck=${false} autocomplete="off" onInput=${({ target }) => setName(target.value)} /></label>
      <${Do} act=${give} disabled=${!name}>Give a password<//></p>
    ${given && html`<div role="status"><p class="lead">${given.items[0].device}: <b>${given.items[0].password}</b></p>
      <p class="quiet">It is shown this once.${ways.length > 0 && ` It sends to ${ways.join(", or to ")}.`}${given.authority ? html` It trusts <a href="/v1/authority">this authority</a>.` : ""}</p></div>`}</details>`;
}

function Holders({ loaded }) {
  const [find, setFind] = useDraft("");
  const back = (device) => async () => {
    await api("DELETE", `/v1/credentials/${enc(device)}`);
    loaded.again();
    return "taken back";
  };
  return html`<h2 class="gap">Who has what</h2><${Loaded} loaded=${loaded}>${({ devices, certificates }) => {
    const all = [...devices.map((device) => ({ device, kind: "password" })), ...certificates.map((one) => ({ ...one, kind: "certificate" }))];
    const found = all.filter(({ device }) => device.includes(find.trim()));
    if (all.length === 0) return html`<p class="card quiet">No device has a password or a certificate from here yet.</p>`;
    return html`<p class="actions bare"><label>Find <input type="search" value=${find} maxlength="64" onInput=${({ target }) => setFind(target.value)} /></label>
        <small>${whole(found.length)} of ${whole(all.length)}${found.length > SHOWN ? `, the first ${SHOWN} are shown` : ""}</small></p>
      <${Rows} caption="Who has what" rows=${found.slice(0, SHOWN)} sorts columns=${[
        ["device", "device", { view: ({ device }) => html`<a href=${`#/devices/${enc(device)}`}>${device}</a>` }],
        ["kind", "has a"],
        ["until", "good until", { view: ({ until }) => (until ? moment(until) : "–") }],
        ["", "what to do", { view: ({ device }) => html`<${Do} danger act=${back(device)} confirm=${`Take it back from ${device}? The broker ends its connection within seconds.`} label=${`Take it back from ${device}`}>Take back<//>` }],
      ]} />`;
  }}<//>`;
}
