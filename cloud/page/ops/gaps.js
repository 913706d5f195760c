/* Gaps: what of streams was lost or is missing. They stand in the log beside the readings, so they are looked for there, when somebody asks. */

import { html, useEffect, useRef, useState } from "../vendor/htm/standalone.module.js";
import { whole } from "../live/format.js";
import { enc, get, getAll } from "./api.js";
import { Ago, Chips, Do, kept, linkTo, Loaded, Rows, useLoaded } from "./ui.js";

const AT_ONCE = 200; /* gaps of one stream */

export function Gaps({ params }) {
  const chosen = kept(params, ["stream", "device"]);
  const loaded = useLoaded(() => getAll("/v1/streams"), "streams of gaps", 60_000);
  return html`<nav class="crumbs"><a href="#/">System</a> › gaps</nav><p class="quiet">Each loss is said, with the device, how many readings and why. A gap of 0 readings is not known yet, or may still be filled: what comes late is shown once.</p>
    ${chosen.device && html`<p class="chips"><a class="chosen" href=${linkTo("#/gaps", params, { device: "" })}>of ${chosen.device} ×</a></p>`}
    <${Loaded} loaded=${loaded} empty="No stream yet.">${({ items }) => html`
      <${Chips} path="#/gaps" params=${params} name="stream" isName values=${["", ...items.map(({ name }) => name)]} />
      <${Look} key=${`${chosen.stream} ${chosen.device}`} streams=${chosen.stream ? [chosen.stream] : items.map(({ name }) => name)} device=${chosen.device} atOnce=${params.get("look") === "1"} />`}<//>`;
}

/** Looks through these streams, one after the other; `device`: for its gaps alone; `atOnce`: without being asked. */
export function Look({ streams, device, atOnce }) {
  const [found, setFound] = useState(null);
  const isOver = useRef(false);
  const look = async () => {
    const all = { items: [], records: 0, isCut: false, done: 0 };
    for (const stream of streams) {
      if (isOver.current) break; /* nobody sees it any more */
      const one = await get(`/v1/streams/${enc(stream)}/gaps?${new URLSearchParams({ limit: AT_ONCE, ...(device && { device }) })}`);
      all.items.push(...one.items.map((gap) => ({ ...gap, stream, id: `${stream}:${gap.partition}:${gap.offset}` })));
      all.records += one.records;
      all.isCut ||= one.is_cut;
      all.done += 1;
      setFound({ ...all, items: all.items.toSorted((a, b) => b.at - a.at) });
    }
    return "";
  };
  useEffect(() => {
    if (atOnce) look().catch((error) => setFound({ items: [], records: 0, done: 0, fault: error.message }));
    return () => {
      isOver.current = true;
    };
  }, []);
  const many = found?.items.length;
  return html`<section class="card"><h2>Lost or missing</h2><p class="actions"><${Do} act=${look} done="">Look for gaps<//></p>
      ${found?.fault && html`<p class="fault" role="alert">${found.fault}</p>`}
      ${found && !found.fault && html`<p class="quiet" role="status">${many || "No"} gap${many === 1 ? "" : "s"} in the newest ${whole(found.records)} records${streams.length > 1 ? `, ${found.done} of ${streams.length} streams` : ""}${found.isCut ? "; there are older ones" : ""}.</p>`}</section>
    ${many > 0 && html`<${Rows} caption="Gaps" rows=${found.items} sorts columns=${[
      ["at", "said", { view: ({ at }) => html`<${Ago} at=${at} />` }],
      ...(streams.length > 1 ? [["stream", "stream", { view: ({ stream }) => html`<a href=${`#/streams/${enc(stream)}`}>${stream}</a>` }]] : []),
      ["device", "device", { view: (row) => html`<a href=${`#/devices/${enc(row.device)}`}>${row.device}</a>` }],
      ["reason"], ["count", "readings lost", { number: true }], ["epoch", "epoch", { number: true }], ["seq", "before number", { number: true }],
    ]} />`}`;
}
