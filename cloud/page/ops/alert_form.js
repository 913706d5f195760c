/* A rule is made in three steps on one screen: what, when, whom to tell; beside it how often it would have fired. */

import { html, useEffect, useState } from "../vendor/htm/standalone.module.js";
import { duration } from "../dom.js";
import { clock, moment, unitSaid, value as short } from "../live/format.js";
import { boundOf, CHOICE, Choices, ChoiceTrial, keepQuery, madeOf, onlyOf } from "./alert_choices.js";
import { api, enc, get, getAll } from "./api.js";
import { headersOf } from "./deliveries.js";
import { Ago, Choice, Do, Loaded, Rows, State, useLoaded } from "./ui.js";

const KINDS = [
  ["stream", "Readings of a stream"],
  ["query", "Results of a query"],
  ["silence", "Devices that fall silent"],
  ["problems", "The system itself"],
];
const PROBLEMS = ["part", "query", "dead_letters", "lease", "operations", "device", "loss"];
const UNITS = [[1, "seconds"], [60, "minutes"], [3600, "hours"], [86_400, "days"]];
const TRIAL_AFTER_MS = 500;
const EMPTY = {
  name: "", text: "", severity: "warning", kind: "stream", stream: "", query: "", when: "", until: "", by: "device", value: "",
  silent_s: 600, problems: [], for_s: 0, over_for_s: 0, stale_s: 0, tell: [], group_s: 10, again_s: 0, quiet: null,
};

/** What the form holds, as the API takes it. */
export function ruleOf(form) {
  const { kind } = form;
  const isData = kind === "stream" || kind === "query";
  return {
    text: form.text, severity: form.severity, for_s: form.for_s, over_for_s: form.over_for_s, tell: form.tell, group_s: form.group_s, again_s: form.again_s, quiet: form.quiet,
    ...(kind === "query" ? { query: form.query || null } : kind === "problems" ? {} : { stream: form.stream || null }),
    ...(isData && { when: form.when || null, until: form.until || null, by: form.by.split(",").map((one) => one.trim()).filter(Boolean), value: form.value || null, stale_s: form.stale_s }),
    ...(kind === "silence" && { silent_s: form.silent_s, when: form.when || null }),
    ...(kind === "problems" && { problems: form.problems }),
  };
}

function formOf(rule) {
  const kind = rule.problems ? "problems" : rule.silent_s ? "silence" : rule.query ? "query" : "stream";
  const known = Object.fromEntries(Object.entries(rule).filter(([name, value]) => name in EMPTY && value !== null));
  return { ...EMPTY, ...known, kind, by: rule.by.join(", ") };
}

export function RuleForm({ name, params }) {
  const loaded = useLoaded(async () => {
    const [streams, queries, destinations, rule] = await Promise.all([
      getAll("/v1/streams"), getAll("/v1/queries"), getAll("/v1/destinations"), name ? get(`/v1/alerts/${enc(name)}`) : null,
    ]);
    return { streams: streams.items, queries: queries.items, destinations: destinations.items, rule: rule?.rule };
  }, `form ${name}`);
  return html`<nav class="crumbs"><a href="#/alerts">Alerts</a> › ${name ? html`<a href=${`#/alerts/${enc(name)}`}>${name}</a> › edit` : "new rule"}</nav>
    <${Loaded} loaded=${loaded}>${(found) => html`<${Form} key=${name} name=${name} params=${params} ...${found} />`}<//>`;
}

function Form({ name, params, streams, queries, destinations, rule }) {
  const [form, setForm] = useState(() => rule ? formOf(rule) : {
    ...EMPTY, kind: params.get("query") ? "query" : params.get("kind") ?? "stream", stream: params.get("stream") ?? "", query: params.get("query") ?? "", value: params.get("field") ?? "",
    ...(params.get("kind") === "silence" && params.get("device") && { when: onlyOf(params.get("device")) }),
  });
  const [version, setVersion] = useState(rule?.version ?? 0);
  const [fault, setFault] = useState(null);
  const [choice, setChoice] = useState({ ...CHOICE, field: params.get("field") ?? "", device: params.get("device") ?? "" });
  const [kept, setKept] = useState(null); /* the query that this form made */
  const set = (part) => setForm((before) => ({ ...before, ...part }));
  const field = (key) => ({ value: form[key], onInput: ({ target }) => set({ [key]: target.value }) });
  const stream = streams.find((one) => one.name === form.stream);
  const query = queries.find((one) => one.name === form.query);
  const fields = form.kind === "stream" ? Object.keys(stream?.fields ?? {}) : [];
  const infos = stream?.fields ?? {};
  const isMade = form.kind === "stream" && choice.how !== "bound"; /* does the form make a query? */
  const isData = (form.kind === "stream" || form.kind === "query") && !isMade;
  const made = isMade ? madeOf(choice, { stream: form.stream, rule: name ?? form.name, infos }) : null;
  const choose = (part) => {
    const next = { ...choice, ...part };
    setChoice(next);
    if (next.how === "bound" && Object.keys(part).some((key) => key !== "how")) set(boundOf(next, infos));
  };
  const save = async () => {
    try {
      if (isMade && !made) throw new Error("When: expected a choice in each field");
      if (made) {
        await keepQuery(made, kept === made.name);
        setKept(made.name);
      }
      await api("PUT", `/v1/alerts/${enc(name ?? form.name)}?version=${version}`, ruleOf({ ...form, ...made?.rule }));
      location.hash = `#/alerts/${enc(name ?? form.name)}`;
    } catch (error) {
      setFault(error);
    }
  };
  const takeTheirs = async () => {
    const { rule: theirs } = await get(`/v1/alerts/${enc(name ?? form.name)}`);
    setForm(formOf(theirs));
    setVersion(theirs.version);
    setFault(null);
  };
  return html`<div class="two"><form class="card rule" onSubmit=${(event) => { event.preventDefault(); save(); }}>
      <fieldset><legend>What</legend>
        <div class="choices" role="radiogroup" aria-label="What it looks at">${KINDS.map(([kind, title]) => html`<label><input type="radio" name="kind" checked=${form.kind === kind} onChange=${() => set({ kind })} /> ${title}</label>`)}</div>
        ${form.kind !== "query" && form.kind !== "problems" && html`<${Choice} label=${form.kind === "silence" ? "Only those that send" : "Stream"} names=${streams.map((one) => one.name)} none=${form.kind === "silence" ? "any stream" : "choose a stream"} ...${field("stream")} />`}
        ${form.kind === "query" && html`<${Choice} label="Query" names=${queries.map((one) => one.name)} none="choose a query" ...${field("query")} />`}
        ${form.kind === "problems" && html`<div class="choices" role="group" aria-label="Kinds of problems">${PROBLEMS.map((one) => html`<label><input type="checkbox" checked=${form.problems.includes(one)} onChange=${() => set({ problems: toggled(form.problems, one) })} /> ${one.replace("_", " ")}</label>`)}<small>none chosen: all</small></div>`}
      </fieldset>
      <fieldset><legend>When</legend>
        ${form.kind === "stream" && html`<${Choices} choice=${choice} infos=${infos} set=${choose} made=${made} stream=${form.stream} />`}
        ${isData && html`<label>Condition <input required placeholder="temperature > 30" spellcheck=${false} list="fields" ...${field("when")} /></label>
          ${fields.length > 0 && html`<p class="hints">Fields: ${fields.map((one) => html`<button type="button" onClick=${() => set({ when: form.when ? `${form.when} ${one}` : `${one} > `, value: form.value || one })}>${one}</button> `)}</p>`}
          <label>Over when <input placeholder="as soon as the condition is false" spellcheck=${false} ...${field("until")} /></label>
          <label>One alert for each <input placeholder="all together" spellcheck=${false} ...${field("by")} /></label>
          <label>Show the value of <input spellcheck=${false} placeholder="a field" ...${field("value")} /></label>`}
        ${form.kind === "silence" && html`<${Time} label="Nothing heard for" value=${form.silent_s} onChange=${(silent_s) => set({ silent_s })} />
          <label>Which devices <input placeholder="all; or e.g. starts_with(device, 'meter')" spellcheck=${false} ...${field("when")} /></label>`}
        <${Time} label="It must hold for" value=${form.for_s} onChange=${(for_s) => set({ for_s })} />
        <${Time} label="And be over for" value=${form.over_for_s} onChange=${(over_for_s) => set({ over_for_s })} />
        ${isData && html`<${Time} label="Over without a reading for" value=${form.stale_s} onChange=${(stale_s) => set({ stale_s })} />`}
      </fieldset>
      <fieldset><legend>Whom to tell</legend>
        ${!name && html`<label>Name of the rule <input required pattern="[a-z][a-z0-9_]*" placeholder="too_hot" title="a-z, 0-9 and _" spellcheck=${false} ...${field("name")} /></label>`}
        <label>In words <input placeholder="Somewhere it is too hot" maxlength="300" ...${field("text")} /></label>
        <${Choice} label="Severity" names=${["info", "warning", "critical"]} ...${field("severity")} />
        <div class="choices" role="group" aria-label="Destinations">${destinations.map((one) => html`<span><label><input type="checkbox" checked=${form.tell.includes(one.name)} onChange=${() => set({ tell: toggled(form.tell, one.name) })} /> ${one.name}</label> <${Try} name=${one.name} /></span>`)}
          ${destinations.length === 0 && html`<small>No destination yet: the alert stands on this page only. <a href="#/alerts?show=destinations">Add one</a></small>`}</div>
        <${Time} label="Gather news for" value=${form.group_s} onChange=${(group_s) => set({ group_s })} />
        <${Time} label="Tell what goes on again after" value=${form.again_s} onChange=${(again_s) => set({ again_s })} />
        <${QuietHours} quiet=${form.quiet} severity=${form.severity} onChange=${(quiet) => set({ quiet })} />
      </fieldset>
      <p class="actions"><button class="primary">${name ? "Replace" : "Make the rule"}</button></p>
      <div role="status">${fault && html`<p class="fault">${fault.message} ${fault.status === 409 && html`<button type="button" onClick=${takeTheirs}>Load that version</button>`}</p>`}</div>
    </form>${isMade ? html`<${ChoiceTrial} choice=${choice} made=${made} />` : html`<${TrialCard} form=${form} unit=${unitSaid((form.kind === "query" ? query?.units[form.value] : stream?.fields[form.value]?.unit) ?? "")} />`}</div>`;
}

const toggled = (list, one) => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);

/** A time as a number and a unit; 0 is none. */
function Time({ label, value, onChange }) {
  const [unit, setUnit] = useState(() => UNITS.findLast(([size]) => value >= size && value % size === 0)?.[0] ?? 1);
  return html`<label>${label} <span class="time"><input type="number" min="0" max="10000" value=${value / unit} onInput=${({ target }) => onChange(Math.round(Number(target.value) * unit))} />
    <select aria-label=${`${label}: unit`} value=${unit} onChange=${({ target }) => { onChange((value / unit) * Number(target.value)); setUnit(Number(target.value)); }}>${UNITS.map(([size, name]) => html`<option value=${size}>${name}</option>`)}</select></span></label>`;
}

const SEVERITIES = ["info", "warning", "critical"];
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const NIGHT = { name: "night", begins: "22:00", ends: "07:00", zone: ZONE, passes: "critical" };

/** The span of a day in which nothing is told, or null. */
function QuietHours({ quiet, severity, onChange }) {
  const field = (key) => ({ value: quiet[key], onInput: ({ target }) => onChange({ ...quiet, [key]: target.value }) });
  const passes = quiet?.passes && SEVERITIES.indexOf(severity) >= SEVERITIES.indexOf(quiet.passes);
  return html`<div class="choices"><label><input type="checkbox" checked=${quiet !== null} onChange=${({ target }) => onChange(target.checked ? NIGHT : null)} /> Quiet hours</label></div>
    ${quiet && html`<div role="group" aria-label="Quiet hours">
      <label>Called <input required maxlength="40" ...${field("name")} /></label>
      <label>From <input type="time" required ...${field("begins")} /></label>
      <label>To <input type="time" required ...${field("ends")} /></label>
      <label>In the zone <input required list="zones" spellcheck=${false} ...${field("zone")} /></label>
      <datalist id="zones">${Intl.supportedValuesOf("timeZone").map((one) => html`<option value=${one} />`)}</datalist>
      <label>Tell all the same <select aria-label="Tell all the same" value=${quiet.passes ?? ""} onChange=${({ target }) => onChange({ ...quiet, passes: target.value || null })}>
        <option value="">nothing</option><option value="warning">warning and critical</option><option value="critical">critical</option></select></label>
      <p class="hints" role="status">${passes ? `This rule is ${severity}: it waits for nothing.` : "What is over by then is never told; the rest is told when they end."}</p></div>`}`;
}

const Try = ({ name }) => html`<${Do} act=${async () => {
  const { sent, error } = await api("POST", `/v1/destinations/${enc(name)}/try`);
  return sent ? "sent" : `not sent: ${error}`;
}} label=${`Test ${name}`}>Test<//>`;

function TrialCard({ form, unit }) {
  const [hours, setHours] = useState(1);
  const [trial, setTrial] = useState(null);
  const [said, setSaid] = useState("");
  const body = JSON.stringify({ ...ruleOf(form), tell: [] });
  const isReady = form.kind === "problems" || form.kind === "silence" || (form[form.kind] && form.when);
  useEffect(() => {
    if (!isReady) {
      setTrial(null);
      setSaid("Choose what and when: how often it would have fired stands here.");
      return undefined;
    }
    let over = false;
    const timer = setTimeout(async () => {
      try {
        const found = await api("POST", `/v1/alerts:check?hours=${hours}`, JSON.parse(body));
        if (!over) { setTrial(found); setSaid(sentence(found, hours)); }
      } catch (error) {
        if (!over) { setTrial(null); setSaid(error.message); }
      }
    }, TRIAL_AFTER_MS);
    return () => { over = true; clearTimeout(timer); };
  }, [body, hours, isReady]);
  return html`<section class="card trial" aria-label="Trial"><h2>Would have fired</h2>
    <label>Over the last <select value=${hours} onChange=${({ target }) => setHours(Number(target.value))}><option value="1">hour</option><option value="24">24 hours</option><option value="168">7 days</option></select></label>
    <p role="status">${said}</p>
    ${trial?.is_known && html`<${TrialChart} trial=${trial} unit=${unit} />
      <ul class="episodes">${trial.episodes.slice(0, 12).map(({ key, begin, end, value }) => html`<li><time title=${moment(begin)}>${clock(begin)}</time> <b>${key}</b> ${value} <small>${end === null ? "still" : `for ${duration((end - begin) / 1000)}`}</small></li>`)}</ul>`}</section>`;
}

function sentence(trial, hours) {
  if (!trial.is_known) return trial.note;
  const times = trial.episodes.length + trial.more;
  const span = hours === 1 ? "hour" : hours === 24 ? "24 hours" : "7 days";
  const cut = trial.is_cut ? " Only the newest readings were looked at." : "";
  if (trial.looks === 0) return `Nothing came in the last ${span} that it could look at.`;
  if (times === 0) return `Never in the last ${span} (${trial.looks} looks).${cut}`;
  return `${times} ${times === 1 ? "time" : "times"} in the last ${span}, ${trial.keys} ${trial.keys === 1 ? "alert" : "alerts"} (${trial.looks} looks).${cut}`;
}

/** The span of the value as a band, and below it how many alerts fired. */
function TrialChart({ trial: { steps, begin, end }, unit }) {
  const W = 600, H = 120, known = steps.filter((step) => step.least !== null);
  const least = Math.min(...known.map((step) => step.least)), most = Math.max(...known.map((step) => step.most));
  const x = (t) => ((W * (t - begin)) / (end - begin)).toFixed(1);
  const y = (v) => (most === least ? H / 2 : 6 + (H - 12) * (1 - (v - least) / (most - least))).toFixed(1);
  const width = (W / steps.length).toFixed(1);
  return html`<figure class="trial-chart"><svg viewBox=${`0 0 ${W} ${H + 14}`} preserveAspectRatio="none" role="img" aria-label="When it would have fired">
      ${known.map((step) => html`<line class="span" x1=${x(step.t)} x2=${x(step.t)} y1=${y(step.least)} y2=${y(step.most)} />`)}
      <polyline points=${known.map((step) => `${x(step.t)},${y(step.most)}`).join(" ")} />
      ${steps.map((step) => step.firing > 0 && html`<rect class="firing" x=${x(step.t)} y=${H + 4} width=${width} height="8" />`)}
    </svg><figcaption><span>${clock(begin)}</span>${known.length > 0 && html`<span>${short(least)} – ${short(most)}${unit && `\u2009${unit}`}</span>`}<span>${clock(end)}</span></figcaption></figure>`;
}

const NOBODY = { name: "", address: "", headers: "" };

export function Destinations() {
  const loaded = useLoaded(() => getAll("/v1/destinations"), "destinations");
  const [form, setForm] = useState(NOBODY);
  const [secret, setSecret] = useState(null);
  const isHook = /^https?:/.test(form.address);
  const keep = async () => {
    const made = await api("PUT", `/v1/destinations/${enc(form.name)}`, { address: form.address, ...(isHook ? headersOf(form.headers) : {}) });
    setForm(NOBODY);
    setSecret(made.secret && made);
    loaded.again();
    return `${made.name} is kept`;
  };
  return html`<nav class="crumbs"><a href="#/alerts">Alerts</a> › destinations</nav>
    <${Loaded} loaded=${loaded} empty="Nobody is told yet.">${({ items }) => html`<${Rows} caption="Destinations" rows=${items} columns=${[
      ["name"], ["kind"], ["where"],
      ["waiting", "waiting", { number: true }],
      ["last_error", "trouble", { view: ({ last_error, waiting }) => (waiting ? html`<${State} state="retrying" /> ${last_error}` : "–") }],
      ["changed_at", "kept", { view: ({ changed_at, changed_by }) => html`<${Ago} at=${changed_at} /> by ${changed_by}` }],
      ["do", "what to do", { view: ({ name }) => html`<${Try} name=${name} /> <${Do} danger act=${() => api("DELETE", `/v1/destinations/${enc(name)}`).then(loaded.again)} confirm=${`Forget ${name}?`} done="forgotten" label=${`Forget ${name}`}>Forget<//>` }],
    ]} />`}<//>
    <section class="card rule"><h2>Add one</h2>
      <label>Name <input value=${form.name} placeholder="oncall" spellcheck=${false} onInput=${({ target }) => setForm({ ...form, name: target.value })} /></label>
      <label>Address <input type="password" autocomplete="off" value=${form.address} placeholder="https://… or mailtos://…" onInput=${({ target }) => setForm({ ...form, address: target.value })} /></label>
      ${isHook && html`<label>Headers <textarea rows="2" autocomplete="off" spellcheck=${false} value=${form.headers} placeholder="Authorization: Bearer …" onInput=${({ target }) => setForm({ ...form, headers: target.value })} /></label>
      <p class="quiet">Your own, one a line, for each call. Without one, those of before stay as long as the address does.</p>`}
      <p class="quiet">A webhook (https://…), or an address of Apprise: <code>mailtos://user:password@mail.example.org?to=oncall@example.org</code>, <code>ntfys://</code>, <code>slack://</code>, <code>matrixs://</code> … It is encrypted and never shown again.</p>
      <p class="actions"><${Do} act=${keep}>Keep<//></p>
      ${secret && html`<p role="alert">The secret of ${secret.name}, shown this once: <code>${secret.secret}</code></p>`}</section>`;
}
