/* Erasures: asked for on the page of a stream or a device by typing its name, and followed here. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { whole } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { Ago, Do, Facts, kept, Loaded, More, Rows, useLoaded } from "./ui.js";

export const STEPS = {
  queries: "removing queries", scan: "finding the last of it in each topic", topics: "deleting topics",
  lake: "lake: taking it out of files", log: "cutting topics that others use too", summaries: "removing summaries",
  settle: "waiting for what the analysis has in hand", analysis: "analysis: taking it out of files", done: "gone",
};
const said = ({ step, detail }) => `${STEPS[step]}${detail ? `; waits for ${detail}` : ""}`;
const sum = (cuts, name) => whole(cuts.reduce((all, cut) => all + cut[name], 0));

const SHOWN = 100; /* of one page */

export function Erasures({ params }) {
  const path = `/v1/erasures?${new URLSearchParams({ limit: SHOWN, ...kept(params, ["after"]) })}`;
  const loaded = useLoaded(() => get(path), path);
  return html`<nav class="crumbs"><a href="#/audit">Audit</a> › erasures</nav><p class="quiet">A stream is erased from its page under <a href="#/streams">Streams</a>, what a device sent from its page under <a href="#/devices">Devices</a>.</p>
    <${Loaded} loaded=${loaded} empty="Nothing was erased.">${(items) => html`<${Rows} caption="Erasures" rows=${items} columns=${[
      ["name", "what", { view: ({ id, what, name }) => html`<a href=${`#/erasures/${enc(id)}`}>${what} ${name}</a>` }],
      ["step", "how far", { view: said }],
      ["asked_at", "asked", { view: ({ asked_at }) => html`<${Ago} at=${asked_at} />` }],
      ["asked_by", "by"],
    ]} /><${More} path="#/erasures" params=${params} next=${items.length === SHOWN ? items.at(-1).id : null}>Older<//>`}<//>`;
}

export function Erasure({ name: id }) {
  const loaded = useLoaded(() => get(`/v1/erasures/${enc(id)}`), `erasure ${id}`);
  return html`<nav class="crumbs"><a href="#/erasures">Erasures</a> › ${id}</nav>
    <${Loaded} loaded=${loaded}>${(row) => html`
      <section class=${`card ${row.step === "done" ? "well" : ""}`} role="status"><h2>${row.what} ${row.name}</h2><p>${said(row)}</p></section>
      <${Facts} of=${[
        ["asked", html`<${Ago} at=${row.asked_at} /> by ${row.asked_by}`],
        ["topics deleted", Object.keys(row.topics).join(", ") || "none"],
        ["queries removed", row.queries.join(", ") || "none"],
        ["records taken from shared topics", `${sum(row.cuts, "records")}, and ${sum(row.cuts, "others")} of others before them`],
        ["summaries removed", whole(row.summaries)],
        ["files of the lake", `${row.files}, with ${whole(row.rows)} rows of it`],
      ]} />
      ${row.left.length > 0 && html`<section class="card"><h2>What is left</h2><ul>${row.left.map((one) => html`<li>${one}</li>`)}</ul></section>`}`}<//>`;
}

/** The danger zone of a page: nothing can be pressed until the name is typed. `ask(withQueries)` gives the erasure. */
export function Erase({ name, what, ask, withQueries }) {
  const [typed, setTyped] = useState("");
  const [isWith, setWith] = useState(false);
  const act = async () => {
    const made = await api("DELETE", ask(isWith));
    location.hash = `#/erasures/${enc(made.id)}`;
    return "asked";
  };
  return html`<section class="card"><h2>Erase for good</h2><p class="quiet">${what} It cannot be undone.</p>
    <p class="actions"><label>Type <b>${name}</b> to confirm <input value=${typed} autocomplete="off" spellcheck=${false} onInput=${({ target }) => setTyped(target.value)} /></label>
      ${withQueries && html`<label><input type="checkbox" checked=${isWith} onChange=${({ target }) => setWith(target.checked)} /> with the queries that read it</label>`}
      <${Do} danger act=${act} disabled=${typed !== name}>Erase<//></p></section>`;
}
