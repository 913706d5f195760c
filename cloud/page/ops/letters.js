/* Dead letters: how many of which reason, the list, one of them: what came, what is wrong, mend it, check it, give it back. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { clock, moment, whole, words } from "../live/format.js";
import { api, enc, get, getBytes, sendBytes } from "./api.js";
import { Table } from "../live/cards.js";
import { Ago, Breaks, bytes, Do, Facts, kept, linkTo, Loaded, More, Rows, useLoaded } from "./ui.js";

const HEX_MAX = 512; /* bytes shown as hex */

export function Letters({ params }) {
  const chosen = kept(params, ["reason", "device", "before"]);
  const loaded = useLoaded(() => get(`/v1/dead-letters?${new URLSearchParams({ limit: 50, ...chosen })}`), `letters ${JSON.stringify(chosen)}`);
  const filter = new URLSearchParams(kept(params, ["reason", "device"]));
  const ofDevice = new URLSearchParams(kept(params, ["device"]));
  const counts = useLoaded(() => get(`/v1/dead-letter-counts?${ofDevice}`), `letter counts ${ofDevice}`, 10_000);
  const reasons = totals(counts.data?.hours ?? []);
  return html`<p class="chips" role="group" aria-label="reason, with those of the last day"><a href=${linkTo("#/letters", params, { reason: "" })} aria-current=${chosen.reason ? "false" : "true"}>all</a>
      ${reasons.map(([reason, count]) => html`<a href=${linkTo("#/letters", params, { reason })} aria-current=${chosen.reason === reason ? "true" : "false"}>${words(reason)} <small>${count}</small></a>`)}
      ${chosen.device && html`<a class="chosen" href=${linkTo("#/letters", params, { device: "" })}>of ${chosen.device} ×</a>`}</p>
    ${counts.data?.letters > 0 && html`<${Hours} counts=${counts.data} reason=${chosen.reason} />`}
    <div class="actions bare"><p class="quiet">What was refused, byte for byte, newest first.</p><${GiveAllBack} key=${`${filter}`} filter=${filter} again=${loaded.again} /></div>
    <${Loaded} loaded=${loaded} empty="Nothing was refused.">${(page) => html`<${Rows} caption="Dead letters" rows=${page.items} columns=${[
      ["received_at", "when", { view: (row) => html`<a href=${`#/letters/${row.offset}`}><${Ago} at=${row.received_at} /></a>` }],
      ["device", "device", { view: ({ device }) => html`<a href=${`#/devices/${enc(device)}`}>${device}</a>` }],
      ["reason", "reason", { view: (row) => words(row.reason) }],
      ["detail", "detail", { wraps: true }],
      ["preview", "begins with", { view: ({ preview }) => html`<code>${preview}</code>` }],
      ["bytes", "size", { number: true, view: (row) => bytes(row.bytes) }],
      ["offset", "what to do", { view: ({ offset }) => html`<${Do} act=${async () => {
        const made = await api("POST", `/v1/dead-letters/${offset}/replay`);
        return made.was_replayed ? "was given back before" : `given back to ${made.stream}`;
      }}>Give back<//>` }],
    ]} /><${More} path="#/letters" params=${params} name="before" next=${page.next}>Older<//>`}<//>`;
}

/** [reason, how many] over these hours, the most first. */
function totals(hours) {
  const sums = new Map();
  for (const { reasons } of hours) for (const [reason, count] of Object.entries(reasons)) sums.set(reason, (sums.get(reason) ?? 0) + count);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

const HOUR_MS = 3_600_000;

/** A bar for each hour of the last day. */
function Hours({ counts, reason }) {
  const begin = Date.now() - (Date.now() % HOUR_MS) - 23 * HOUR_MS;
  const found = new Map(counts.hours.map(({ at, reasons }) => [at, reason ? (reasons[reason] ?? 0) : Object.values(reasons).reduce((sum, one) => sum + one, 0)]));
  const hours = Array.from({ length: 24 }, (_, i) => [begin + i * HOUR_MS, found.get(begin + i * HOUR_MS) ?? 0]);
  const most = Math.max(1, ...hours.map(([, count]) => count));
  const all = hours.reduce((sum, [, count]) => sum + count, 0);
  const text = `${whole(all)} in the last 24 hours, at most ${whole(most)} in an hour`;
  return html`<figure class="card hours"><figcaption><b>Refused in each hour</b> <small>${text}${counts.is_cut ? "; older ones are not counted" : ""}</small></figcaption>
    <div role="img" aria-label=${`Refused in each hour: ${text}`}>${hours.map(([at, count]) => html`<i key=${at} title=${`${whole(count)} from ${moment(at)}`} style=${{ height: `${(100 * count) / most}%` }}></i>`)}</div>
    <p class="strip-ends"><small>${clock(begin).slice(0, -3)}</small><small>now</small></p></figure>`;
}

/** All of a filter: counted first, then given back fifty at a time, the oldest first. */
function GiveAllBack({ filter, again }) {
  const [said, setSaid] = useState("");
  const [isBusy, setBusy] = useState(false);
  const work = async () => {
    const counted = await get(`/v1/dead-letter-counts?${filter}`);
    const about = [...filter].map(([name, value]) => `${name} ${value}`).join(", ") || "of every reason and device";
    if (!confirm(`${whole(counted.letters)}${counted.is_cut ? " and more" : ""} letters of the last day, and older ones that are kept (${about}): give all of them back, the oldest first? Those that would still be refused stay.`)) return "nothing was done";
    const sums = { given_back: 0, were_back: 0, refused: 0 };
    let why = "";
    for (let first = 0; first !== null; ) {
      const done = await api("POST", "/v1/dead-letters:replay", { ...Object.fromEntries(filter), first, before: counted.newest });
      for (const name of Object.keys(sums)) sums[name] += done[name];
      why ||= done.refusals[0]?.detail ?? "";
      first = done.next;
      setSaid(`${sums.given_back} given back …`);
    }
    again();
    return `${sums.given_back} given back, ${sums.were_back} were before, ${sums.refused} still refused${why ? `, e.g. ${why}` : ""}`;
  };
  const press = async () => {
    setBusy(true);
    setSaid("counting …");
    setSaid(await work().catch((error) => error.message));
    setBusy(false);
  };
  return html`<button type="button" disabled=${isBusy} onClick=${press}>Give all of these back</button><span class="said" role="status">${said}</span>`;
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
        ["topic", html`<code><${Breaks} text=${facts.topic} /></code>`],
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
        : html`<label class="spoken" for="letter">Payload</label><textarea id="letter" rows="10" spellcheck=${false} value=${edited} onInput=${({ target }) => setEdited(target.value)}></textarea>
          ${at !== null && !isMended && html`<p class="quiet">The error is at character ${at}: <code>${text.slice(Math.max(0, at - 20), at)}<mark>${text.slice(at, at + 1) || "⏎"}</mark>${text.slice(at + 1, at + 20)}</code></p>`}`}
      <p class="actions"><${Do} act=${check} done="">Check<//><${Do} act=${giveBack} confirm=${isMended ? "Give back what stands here in the place of what came? The audit says so." : null}>Give back${isMended ? " mended" : ""}<//>
        <a class="button" href=${`/v1/dead-letters/${offset}`} download>Download</a>
        ${isMended && html`<button type="button" onClick=${() => setEdited(text)}>As it came</button>`}</p>
      <p class="fault" role="status">${fault}</p></section>
    ${found && html`<section class="card well"><h2>It would be accepted <small>${found.readings.length} readings of ${found.device} on ${found.stream}</small></h2>
      <${Table} rows=${found.readings} columns=${[...new Set(found.readings.flatMap((one) => Object.keys(one)))].filter((one) => one !== "stream" && one !== "received_at")} caption="Readings" /></section>`}`;
}
