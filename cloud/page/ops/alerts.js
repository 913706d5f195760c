/* Alerts: what is raised, what fires first; one rule with its alerts, their histories and what was told of them. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { called, clock, local, moment, unitSaid, whole, words } from "../live/format.js";
import { Destinations, RuleForm } from "./alert_form.js";
import { api, enc, get, getAll, PAGE_MAX } from "./api.js";
import { Ago, Do, Facts, Loaded, Rows, useLoaded } from "./ui.js";

const GROUPS = [
  ["firing", "Firing"],
  ["acknowledged", "Acknowledged"],
  ["pending", "Not long enough yet"],
  ["resolved", "Over"],
];
const [OVER_SHOWN, OVER_MORE] = [20, 100];
const SNOOZES = [["1 h", 3600], ["8 h", 28_800], ["2 days", 172_800]];

export function Alerts({ params }) {
  if (params.get("show") === "destinations") return html`<${Destinations} />`;
  if (params.get("new")) return html`<${RuleForm} params=${params} />`;
  return html`<p class="actions"><a class="button" href="#/alerts?new=1">New rule</a> <a class="button" href="#/alerts?show=destinations">Destinations</a></p>
    <${Raised} /><${Rules} />`;
}

function Raised() {
  const [pages, setPages] = useState(1);
  const [over, setOver] = useState(OVER_SHOWN);
  const loaded = useLoaded(() => getAll("/v1/raised", pages), "raised");
  const more = () => {
    setPages(pages + 1);
    loaded.again();
  };
  return html`<${Loaded} loaded=${loaded} empty="Nothing is wrong that a rule looks for.">${({ items, total }) => html`
    ${GROUPS.map(([state, title]) => {
      const all = items.filter((one) => one.state === state);
      const shown = state === "resolved" ? all.slice(0, over) : all;
      const left = all.length - shown.length;
      return shown.length > 0 && html`<section class="card raised" data-state=${state} data-severity=${worstOf(shown)} key=${state}><h2>${title} <small>${all.length}</small></h2>
        <ul>${shown.map((one) => html`<${Row} key=${`${one.rule}|${one.key}`} alert=${one} again=${loaded.again} withRule />`)}</ul>
        ${left > 0 && html`<p class="actions"><button type="button" onClick=${() => setOver(over + OVER_MORE)}>Show ${Math.min(left, OVER_MORE)} more that are over</button></p>`}</section>`;
    })}
    ${total > items.length && html`<p class="actions"><button type="button" onClick=${more}>Show ${whole(Math.min(total - items.length, PAGE_MAX))} more</button><small role="status">${whole(items.length)} of ${whole(total)}</small></p>`}`}<//>`;
}

function Rules() {
  const loaded = useLoaded(() => getAll("/v1/alerts"), "rules");
  return html`<h2 class="gap">Rules</h2><${Loaded} loaded=${loaded} empty=${html`No rule yet. <a href="#/alerts?new=1">Make the first one</a>, or keep rules in a file: <code>edgewake alert apply FILE</code>`}>${({ items, total }) => html`<${Rows} caption="Rules" rows=${items} total=${total} finds=${(row) => `${row.name} ${row.text} ${row.looks_at}`} columns=${[
    ["name", "rule", { view: ({ name }) => html`<a href=${`#/alerts/${enc(name)}`}>${name}</a>` }],
    ["text", "what is wrong", { view: ({ text }) => text || "–" }],
    ["looks_at", "looks at"],
    ["firing", "firing", { number: true, view: ({ alerts }) => alerts.firing + alerts.acknowledged }],
    ["severity", "severity"],
    ["tell", "tells", { view: ({ tell }) => tell.join(", ") || "nobody" }],
  ]} />`}<//>`;
}

/** One alert in a line: what, since when, who has it, and what can be done. */
function Row({ alert, again, withRule }) {
  const say = async (what, body) => {
    await api("POST", `/v1/alerts/${enc(alert.rule)}/${what}`, { key: alert.key, ...body });
    again();
  };
  const isSnoozed = alert.snoozed_until > Date.now();
  const isOpen = alert.state === "firing" || alert.state === "acknowledged";
  return html`<li><i class="dot" data-state=${alert.state === "firing" && alert.severity === "info" ? "late" : DOTS[alert.state]} aria-hidden="true"></i>
    <span class="what">${withRule && html`<a href=${`#/alerts/${enc(alert.rule)}`}>${alert.rule}</a> `}<b>${alert.key}</b> ${valueOf(alert)}${alert.notes?.length > 0 && html` <small>${alert.notes.map(({ destination, state }) => `${WENT[state]} ${destination}`).join(", ")}</small>`}</span>
    <small>${alert.flapping ? "flaps, " : ""}${alert.state === "resolved" ? "over" : words(alert.state)} <${Ago} at=${alert.since} />${alert.by && ` by ${alert.by}`}${isSnoozed && html`, snoozed until <time title=${moment(alert.snoozed_until)}>${clock(alert.snoozed_until)}</time>`}${isOpen && alert.told !== "firing" && alert.quiet_until > 0 && html`, quiet until <time title=${moment(alert.quiet_until)}>${clock(alert.quiet_until)}</time>`}</small>
    ${isOpen && html`<span class="actions">
      ${alert.state === "firing" && html`<${Do} act=${() => say("ack", {})} done="taken" label=${`Acknowledge ${alert.key}`}>Acknowledge<//>`}
      ${isSnoozed ? html`<${Do} act=${() => say("snooze", { seconds: 0 })} done="told again" label=${`Tell ${alert.key} again`}>Tell again<//>`
        : html`<${Snooze} name=${alert.key} act=${(seconds) => say("snooze", { seconds })} />`}</span>`}</li>`;
}

/** Red is for what somebody should act on now: not for a group of which all are `info`. */
const worstOf = (alerts) => (alerts.every(({ severity }) => severity === "info") ? "info" : "warning");

const WENT = { sent: "told", waiting: "tries to tell", given_up: "could not tell" };

/** What an alert is about: its field with the value and unit, or a sentence, without the name that stands before it. */
function valueOf({ key, value, field, unit }) {
  if (!field) return local(value.startsWith(`${key} `) ? value.slice(key.length + 1) : value);
  return value && `${called(field, unitSaid(unit))} ${value}${unit && `\u2009${unitSaid(unit)}`}`;
}

const DOTS = { firing: "bad", acknowledged: "late", pending: "late", resolved: "well" };

function Snooze({ name, act }) {
  const [seconds, setSeconds] = useState(SNOOZES[0][1]);
  return html`<select aria-label=${`Snooze ${name} for`} value=${seconds} onChange=${({ target }) => setSeconds(Number(target.value))}>
      ${SNOOZES.map(([text, value]) => html`<option value=${value}>${text}</option>`)}</select>
    <${Do} act=${() => act(seconds)} done="snoozed" label=${`Snooze ${name}`}>Snooze<//>`;
}

export function AlertRule({ name, params }) {
  const loaded = useLoaded(() => get(`/v1/alerts/${enc(name)}`), `alert ${name}`);
  if (params.get("edit")) return html`<${RuleForm} name=${name} params=${params} />`;
  const all = (what, body) => api("POST", `/v1/alerts/${enc(name)}/${what}`, body).then(() => loaded.again());
  return html`<nav class="crumbs"><a href="#/alerts">Alerts</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${({ rule, alerts, notes }) => html`
      ${rule.text && html`<p class="lead">${rule.text}</p>`}
      <${Facts} of=${facts(rule)} />
      <p class="actions"><a class="button" href=${`#/alerts/${enc(name)}?edit=1`}>Edit</a>
        ${rule.alerts.firing > 0 && html`<${Do} act=${() => all("ack", {})} done="taken">Acknowledge all<//>`}
        ${rule.alerts.firing + rule.alerts.acknowledged > 0 && html`<${Snooze} name="all" act=${(seconds) => all("snooze", { seconds })} />`}
        <${Do} danger act=${async () => {
          await api("DELETE", `/v1/alerts/${enc(name)}`);
          location.hash = "#/alerts";
        }} confirm=${`Remove ${name} and its alerts?`} done="removed">Remove<//></p>
      ${alerts.length === 0 && html`<p class="card quiet">It has raised nothing in the last week.</p>`}
      ${alerts.map((alert) => html`<section class="card raised" key=${alert.key} data-state=${alert.state} data-severity=${rule.severity}>
        <ul><${Row} alert=${{ ...alert, field: rule.value, unit: rule.unit, severity: rule.severity, quiet_until: rule.quiet_until }} again=${loaded.again} /></ul><${History} alert=${alert} /></section>`)}
      ${notes.length > 0 && html`<h2 class="gap">Told</h2><${Rows} caption="Told" rows=${notes} columns=${[
        ["made_at", "when", { view: ({ made_at }) => html`<${Ago} at=${made_at} />` }],
        ["destination", "whom"],
        ["title", "what"],
        ["state", "how it went", { view: went }],
      ]} />`}`}<//>`;
}

function went({ state, attempts, next_at, error }) {
  if (state === "sent") return html`<span class="state"><i class="dot" data-state="well"></i>sent${attempts > 1 && ` at attempt ${attempts}`}</span>`;
  if (state === "given_up") return html`<span class="state"><i class="dot" data-state="bad"></i>given up: ${error}</span>`;
  const wait = Math.max(0, Math.ceil((next_at - Date.now()) / 1000));
  return html`<span class="state"><i class="dot" data-state="late"></i>${error ? `${error}; again in ${wait} s` : "under way"}</span>`;
}

function History({ alert }) {
  return html`<details open=${alert.state !== "resolved"}><summary>History of ${alert.key}</summary>
    <ol class="history">${alert.history.toReversed().map(({ at, what, why, who, value }) => html`<li><time title=${moment(at)}>${clock(at)}</time>
      <span><b>${what}</b>${value && ` ${value}`}${who && ` by ${who}`}${why && `: ${why}`}</span></li>`)}</ol></details>`;
}

const facts = (rule) => [
  ["looks at", rule.looks_at],
  ["when", rule.when ?? (rule.silent_s ? `nothing for ${duration(rule.silent_s)}` : (rule.problems.join(", ") || "any problem"))],
  ["until", rule.until],
  ["holds for", rule.for_s ? duration(rule.for_s) : "at once"],
  ["severity", rule.severity],
  ["tells", rule.tell.join(", ") || "nobody"],
  ["quiet hours", rule.quiet && html`${rule.quiet.name}, ${rule.quiet.begins}–${rule.quiet.ends} ${rule.quiet.zone}${rule.quiet_until > 0 && html`: nothing is told until <time title=${moment(rule.quiet_until)}>${clock(rule.quiet_until)}</time>`}`],
  ["again after", rule.again_s ? duration(rule.again_s) : "never"],
  ["version", html`${rule.version} by ${rule.changed_by}, <${Ago} at=${rule.changed_at} />`],
];
