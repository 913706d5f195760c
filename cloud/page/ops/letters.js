/* Dead letters: how many of which reason, the list, one of them: what came, what is wrong, mend it, check it, give it back. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { moment, words } from "../live/format.js";
import { api, enc, get, getBytes, sendBytes } from "./api.js";
import { Table } from "../live/cards.js";
import { Ago, bytes, Do, Facts, kept, Loaded, More, Rows, useLoaded } from "./ui.js";

const HEX_MAX = 512; /* bytes shown as hex */

export function Letters({ params }) {
  const chosen = kept(params, ["reason", "device", "before"]);
  const loaded = useLoaded(() => get(`/v1/dead-letters?${new URLSearchParams({ limit: 50, ...chosen })}`), `letters ${JSON.stringify(chosen)}`);
  const overview = useLoaded(() => get("/v1/overview"), "letters overview");
  const reasons = Object.entries(overview.data?.dead_letters ?? {}).sort((a, b) => b[1] - a[1]);
  return html`<p class="chips" role="group" aria-label="reason, with those of the last hour"><a href="#/letters" aria-current=${chosen.reason ? "false" : "true"}>all</a>
      ${reasons.map(([reason, count]) => html`<a href=${`#/letters?reason=${enc(reason)}`} aria-current=${chosen.reason === reason ? "true" : "false"}>${words(reason)} <small>${count}</small></a>`)}</p>
    <p class="quiet">What was refused, byte for byte, newest first${chosen.device && html`, of <b>${chosen.device}</b>`}. The counts are of the last hour.</p>
    <${Loaded} loaded=${loaded} empty="Nothing was refused.">${(page) => html`<${Rows} caption="Dead letters" rows=${page.items} columns=${[
      ["received_at", "when", { view: (row) => html`<a href=${`#/letters/${row.offset}`}><${Ago} at=${row.received_at} /></a>` }],
      ["device", "device", { view: ({ device }) => html`<a href=${`#/devices/${enc(device)}`}>${device}</a>` }],
      ["reason", "reason", { view: (row) => words(row.reason) }],
      ["detail"],
      ["preview", "begins with", { view: ({ preview }) => html`<code>${preview}</code>` }],
      ["bytes", "size", { number: true, view: (row) => bytes(row.bytes) }],
      ["offset", "what to do", { view: ({ offset }) => html`<${Do} act=${async () => {
        const made = await api("POST", `/v1/dead-letters/${offset}/replay`);
        return made.was_replayed ? "was given back before" : `given back to ${made.stream}`;
      }}>Give back<//>` }],
    ]} /><${More} path="#/letters" params=${params} name="before" next=${page.next}>Older<//>`}<//>`;
}

/** The letter at this offset, as text where it is one. */
async function letterAt(offset) {
  const [page, payload] = await Promise.all([get(`/v1/dead-letters?limit=1&before=${offset + 1}`), getBytes(`/v1/dead-letters/${offset}`)]);
  const facts = page.items.find((one) => one.offset === offset) ?? null;
  let text = null;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(payload);
  } catch {
    /* bytes that are no text are shown as hex */
  }
  return { facts, payload, text };
}

export function Letter({ name }) {
  const offset = Number(name);
  const loaded = useLoaded(() => letterAt(offset), `letter ${name}`, 3_600_000);
  return html`<nav class="crumbs"><a href="#/letters">Letters</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${({ facts, payload, text }) => html`
      ${facts && html`<${Facts} of=${[
        ["why", words(facts.reason)],
        ["device", html`<a href=${`#/devices/${enc(facts.device)}`}>${facts.device}</a>`],
        ["topic", html`<code>${facts.topic}</code>`],
        ["came", html`<span>${moment(facts.received_at)}</span>`],
        ["refused by", facts.part],
        ["size", `${bytes(facts.bytes)}${facts.content_type ? `, ${facts.content_type}` : ""}`],
      ]} /><p class="card wrong">${facts.detail}</p>`}
      <${Mend} offset=${offset} text=${text} payload=${payload} detail=${facts?.detail ?? ""} />`}<//>`;
}

const hex = (payload) => [...payload.slice(0, HEX_MAX)].map((one) => one.toString(16).padStart(2, "0")).join(" ").replace(/((?:.. ){15}..) /g, "$1\n");

/** The place of the error, where the sentence names a character: "char 17", "column 17". */
const placeIn = (detail, text) => {
  const found = /(?:char(?:acter)?|column|offset) (\d+)/.exec(detail);
  const at = found ? Number(found[1]) : null;
  return at === null || text === null || at > text.length ? null : at;
};

function Mend({ offset, text, payload, detail }) {
  const [edited, setEdited] = useState(text ?? "");
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState("");
  const isMended = text !== null && edited !== text;
  const body = isMended ? edited : null;
  const attempt = (work) => async () => {
    setFault("");
    setFound(null);
    try {
      return await work();
    } catch (error) {
      setFault(error.message);
      return "";
    }
  };
  const check = attempt(async () => {
    setFound(await sendBytes("POST", `/v1/dead-letters/${offset}/check`, body));
    return "";
  });
  const giveBack = attempt(async () => {
    const made = await sendBytes("POST", `/v1/dead-letters/${offset}/replay`, body);
    return made.was_replayed ? `was given back before, to ${made.stream}` : `given back to ${made.stream}, partition ${made.partition}, offset ${made.offset}`;
  });
  const at = placeIn(detail, text);
  return html`<section class="card"><h2>${text === null ? "Its bytes" : "Its text"} ${isMended && html`<small>mended</small>`}</h2>
      ${text === null ? html`<pre tabindex="0"><code>${hex(payload)}</code></pre>`
        : html`<label class="spoken" for="letter">Payload</label><textarea id="letter" rows="10" spellcheck="false" value=${edited} onInput=${({ target }) => setEdited(target.value)}></textarea>
          ${at !== null && !isMended && html`<p class="quiet">The error is at character ${at}: <code>${text.slice(Math.max(0, at - 20), at)}<mark>${text.slice(at, at + 1) || "⏎"}</mark>${text.slice(at + 1, at + 20)}</code></p>`}`}
      <p class="actions"><${Do} act=${check} done="">Check<//><${Do} act=${giveBack} confirm=${isMended ? "Give back what stands here in the place of what came? The audit says so." : null}>Give back${isMended ? " mended" : ""}<//>
        <a class="button" href=${`/v1/dead-letters/${offset}`} download>Download</a>
        ${isMended && html`<button type="button" onClick=${() => setEdited(text)}>As it came</button>`}</p>
      <p class="fault" role="status">${fault}</p></section>
    ${found && html`<section class="card well"><h2>It would be accepted <small>${found.readings.length} readings of ${found.device} on ${found.stream}</small></h2>
      <${Table} rows=${found.readings} columns=${[...new Set(found.readings.flatMap((one) => Object.keys(one)))].filter((one) => one !== "stream" && one !== "received_at")} caption="Readings" /></section>`}`;
}
