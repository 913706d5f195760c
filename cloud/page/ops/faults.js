/* Faults of a demonstration: buttons that kill, freeze and cut, and beside them what the ledger counts at the other end. */

import { html } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { value } from "../live/format.js";
import { api, get } from "./api.js";
import { Ago, Do, Loaded, State, useLoaded } from "./ui.js";

const DONE = { kill: "killed", freeze: "frozen for 10 s", cut: "cut for 10 s" };

export function Faults() {
  const loaded = useLoaded(() => get("/v1/faults"), "faults", 1_000);
  const order = (kind, target) => async () => {
    await api("POST", "/v1/faults", { kind, target });
    loaded.again();
    return "";
  };
  return html`<nav class="crumbs"><a href="#/">System</a> › faults</nav><section class="card" aria-label="Faults"><h2>Faults <small>done to this system; what comes of it is counted at the other end</small></h2>
    <${Loaded} loaded=${loaded}>${({ parts, links, faults, verdict }) => html`
      <${Verdict} verdict=${verdict} />
      <p class="quiet">Kill: SIGKILL, then it is started again. Freeze: it stands still. Cut: nothing gets through, then all connections break.</p>
      <div class="halves">
        <ul class="targets" aria-label="Parts">${parts.map(({ name, state }) => html`<li key=${name}><${State} state=${state} /><b>${name}</b>
          <span class="actions"><${Do} act=${order("kill", name)} done="" disabled=${state !== "ready"} label=${`Kill ${name}`}>Kill<//>
          <${Do} act=${order("freeze", name)} done="" disabled=${state !== "ready"} label=${`Freeze ${name} for 10 s`}>Freeze 10 s<//></span></li>`)}</ul>
        <div><ul class="targets" aria-label="Links">${links.map(({ name, text, is_cut }) => html`<li key=${name}><${State} state=${is_cut ? "cut" : "whole"} /><b>${text}</b>
          <span class="actions"><${Do} act=${order("cut", name)} done="" disabled=${is_cut} label=${`Cut ${name} for 10 s`}>Cut 10 s<//></span></li>`)}</ul>
          <${Told} faults=${faults} /></div>
      </div>`}<//></section>`;
}

/** What the ledger gave to devices of its own, and what of it came out at a reader. */
function Verdict({ verdict }) {
  if (verdict === null) return html`<p class="quiet" role="status">The ledger begins: its devices connect, and its query is registered.</p>`;
  const bad = verdict.lost + verdict.twice + verdict.wrong;
  const seconds = Math.round(verdict.oldest_ms / 1000);
  return html`<div role="group" aria-label="Verdict of the ledger"><dl class="verdict">
      ${["lost", "twice", "wrong"].map((name) => html`<div data-state=${verdict[name] ? "bad" : "well"}><dt>${name}</dt><dd>${value(verdict[name])}</dd></div>`)}
      <div><dt>given to devices</dt><dd>${value(verdict.taken)}</dd></div>
      <div><dt>on their way</dt><dd>${value(verdict.waiting)}<small>${verdict.waiting && seconds > 1 ? ` for up to ${duration(seconds)}` : ""}\u00a0</small></dd></div>
      <div><dt>shown once</dt><dd>${value(verdict.shown)}</dd></div>
      <div><dt>windows right</dt><dd>${value(verdict.windows)}<small>${verdict.late ? ` ${verdict.late} not judged: late` : verdict.windows ? "" : " final after 2 min"}\u00a0</small></dd></div></dl></div>
    ${bad > 0 && html`<ul class="fault">${verdict.sentences.map((one) => html`<li>${one}</li>`)}</ul>`}`;
}

const Told = ({ faults }) => html`<ol class="told" aria-label="What was done">${faults.slice(0, 8).map((one) => html`<li key=${one.number}><b>${one.target}</b> ${DONE[one.kind]}, <${Ago} at=${one.at} />${" "}
  <span class="quiet">${one.over_at === null ? "not over yet" : `over after ${((one.over_at - one.at) / 1000).toFixed(1)} s`}</span></li>`)}</ol>`;
