/* When a rule raises, chosen without writing: a bound, which becomes the condition, or what needs a query, which the form makes. */

import { html, useEffect, useState } from "../vendor/htm/standalone.module.js";
import { columnsOf, Table } from "../live/cards.js";
import { clock, counted, unitSaid, words } from "../live/format.js";
import { api, enc } from "./api.js";
import { DeviceField } from "./device_field.js";
import { faultsOf, Sql } from "./editor.js";

/** How a rule over a stream is chosen: its key, and what people call it. */
export const HOWS = [["bound", "Above or below"], ["changes", "It changes"], ["unusual", "It is unusual"], ["pattern", "One after the other"]];
const IS = [[">", "above"], ["<", "below"], ["=", "exactly"], ["<>", "anything but"]];
const BACK = { ">": "<", "<": ">" }; /* until it is over again */
const UNLIKE = [[8, "only what is very unlike"], [5, "what is unlike"], [3.5, "also what is a little unlike"]];
const WITHIN = [[10, "10 seconds"], [60, "1 minute"], [600, "10 minutes"], [3600, "1 hour"]];
const LOOK_BACK = 60; /* readings of the device that a value is compared with */
const OVER_S = 60; /* what happens in a moment is over so long after the last time */
const STEPS_MAX = 3; /* of what comes one after the other */
const CHECK_AFTER_MS = 500;
const PREVIEW_ROWS = 200;
const ROWS_SHOWN = 12;

const STEP = { field: "", is: ">", bound: "" };
export const CHOICE = { how: "bound", field: "", is: ">", bound: "", over: "", device: "", becomes: "", unlike: 5, within: 60, steps: [STEP, STEP] };

const quoted = (name) => `"${name}"`;

/** A value as a condition has it, by the type of its field. */
function literal(said, type) {
  if (type === "string") return `'${said.replaceAll("'", "''")}'`;
  return said.trim();
}

const isWhole = ({ field, bound }) => field !== "" && bound.trim() !== "";

/** A condition that holds for one device alone; of no device it is that of all. */
export const onlyOf = (device, condition = "") => [device.trim() && `device = ${literal(device.trim(), "string")}`, condition].filter(Boolean).join(" AND ");

/** The condition of a bound, when it is over again, and what is shown: parts of the form. Pure. */
export function boundOf({ field, is, bound, over, device }, infos) {
  const type = infos[field]?.type;
  if (!isWhole({ field, bound })) return { value: field };
  return { when: onlyOf(device, `${field} ${is} ${literal(bound, type)}`), until: BACK[is] && over.trim() ? `${field} ${BACK[is]} ${literal(over, type)}` : "", value: field };
}

/** What a choice needs of a query: {name, text} and the rule over it, as parts of the form; null where something is not chosen yet. Pure. */
export function madeOf(choice, { stream, rule, infos }) {
  const { how, field, device, becomes, unlike, within, steps } = choice;
  const name = `${rule || "my_rule"}_${how}`.slice(0, 64);
  const head = (what, more = "") => `-- name: ${name}\n-- description: Made for the alert rule ${rule || "my_rule"}: ${what}\n${more}`;
  const over = { kind: "query", query: name, by: "device", until: "", stale_s: OVER_S };
  if (!stream) return null;
  if (how === "pattern") {
    if (!steps.every(isWhole)) return null;
    const conditions = steps.map((one) => `${quoted(one.field)} ${one.is} ${literal(one.bound, infos[one.field]?.type)}`);
    const text = `${head(`${steps.map((one) => one.field).join(", then ")}, within ${within} s`)}SELECT device, count(*) AS readings\nFROM ${stream}\nGROUP BY pattern_window('${within} seconds', ${conditions.join(", ")}), device\n`;
    return { name, text, rule: { ...over, when: onlyOf(device, "readings > 0"), value: "readings" } };
  }
  if (!field) return null;
  if (how === "changes") {
    const text = `${head(`each change of ${field}`, "-- on_change: device\n")}SELECT device, ${quoted(field)}\nFROM ${stream}\n`;
    return { name, text, rule: { ...over, when: onlyOf(device, becomes.trim() ? `${field} = ${literal(becomes, infos[field]?.type)}` : `${field} IS NOT NULL`), value: field } };
  }
  const odd = `unlikeness > ${unlike} OR unlikeness < -${unlike}`;
  const text = `${head(`${field} unlike the ${LOOK_BACK} readings before`)}SELECT device, ${quoted(field)}, round(robust_zscore(${quoted(field)}, ${LOOK_BACK}), 1) AS unlikeness\nFROM ${stream}\n`;
  return { name, text, rule: { ...over, stale_s: 0, when: onlyOf(device, device.trim() ? `(${odd})` : odd), value: field } };
}

/** Does a row of the preview raise the rule? */
function raises(row, { how, field, device, becomes, unlike }) {
  if (device.trim() && row.device !== device.trim()) return false;
  if (how === "unusual") return Math.abs(row.unlikeness ?? 0) > unlike;
  return how !== "changes" || !becomes.trim() || String(row[field]) === becomes.trim();
}

const Pick = ({ label, of, value, onChange }) => html`<label>${label} <select value=${value} onChange=${({ target }) => onChange(target.value)}>${of.map(([one, text]) => html`<option value=${one}>${text}</option>`)}</select></label>`;

/** Field, comparison and number in one line. `label`: what stands before it. */
function Bound({ label, of, infos, set }) {
  const names = Object.keys(infos);
  return html`<label>${label} <span class="time"><select aria-label=${`${label}: field`} value=${of.field} onChange=${({ target }) => set({ field: target.value })}><option value="">field</option>${names.map((one) => html`<option value=${one}>${words(one)}</option>`)}</select>
    <select aria-label=${`${label}: is`} value=${of.is} onChange=${({ target }) => set({ is: target.value })}>${IS.map(([one, text]) => html`<option value=${one}>${text}</option>`)}</select>
    <input aria-label=${`${label}: bound`} placeholder="30" spellcheck=${false} autocomplete="off" value=${of.bound} onInput=${({ target }) => set({ bound: target.value })} />
    <small>${unitSaid(infos[of.field]?.unit ?? "")}</small></span></label>`;
}

/** What is chosen of a stream. `set(part)`: of the choice; `made`: what `madeOf` gives. */
export function Choices({ choice, infos, set, made, stream }) {
  const { how, field, is, over, device, becomes, unlike, within, steps } = choice;
  const fields = [["", "choose"], ...Object.keys(infos).filter((one) => how !== "unusual" || infos[one].type === "number").map((one) => [one, words(one)])];
  const setStep = (i) => (part) => set({ steps: steps.map((one, j) => (i === j ? { ...one, ...part } : one)) });
  return html`<div class="choices" role="radiogroup" aria-label="How it raises">${HOWS.map(([one, title]) => html`<label><input type="radio" name="how" checked=${how === one} onChange=${() => set({ how: one })} /> ${title}</label>`)}</div>
    ${how === "bound" && html`<${Bound} label="It is" of=${choice} infos=${infos} set=${set} />
      ${BACK[is] && html`<label>And over again ${is === ">" ? "below" : "above"} <input placeholder="the same" spellcheck=${false} autocomplete="off" value=${over} onInput=${({ target }) => set({ over: target.value })} /></label>`}`}
    ${(how === "changes" || how === "unusual") && html`<${Pick} label="Which field" of=${fields} value=${field} onChange=${(one) => set({ field: one })} />`}
    ${how === "changes" && html`<label>Only when it becomes <input placeholder="anything" spellcheck=${false} autocomplete="off" value=${becomes} onInput=${({ target }) => set({ becomes: target.value })} /></label>`}
    ${how === "unusual" && html`<${Pick} label="How unlike" of=${UNLIKE} value=${unlike} onChange=${(one) => set({ unlike: Number(one) })} />`}
    ${how === "pattern" && html`${steps.map((one, i) => html`<${Bound} key=${i} label=${i === 0 ? "First" : `Then ${i}`} of=${one} infos=${infos} set=${setStep(i)} />`)}
      <p class="hints">${steps.length < STEPS_MAX && html`<button type="button" onClick=${() => set({ steps: [...steps, STEP] })}>One more</button>`} ${steps.length > 2 && html`<button type="button" onClick=${() => set({ steps: steps.slice(0, -1) })}>One less</button>`}</p>
      <${Pick} label="All within" of=${WITHIN} value=${within} onChange=${(one) => set({ within: Number(one) })} />`}
    <label>Only of one device <${DeviceField} id="devices-of-rule" placeholder="all" stream=${stream} value=${device} onInput=${({ target }) => set({ device: target.value })} /></label>
    ${how !== "bound" && html`<p class="hints">${EXPLAINED[how]}${made ? html` It is the query <code>${made.name}</code>, which stays when the rule is removed.` : ""}</p>
      ${made && html`<details><summary>The query that is made</summary><${Sql} text=${made.text} /></details>`}`}`;
}

const EXPLAINED = {
  changes: `A reading in which the field differs from the one before of the same device. The alert is over ${OVER_S} s after the last change.`,
  unusual: `A reading that is unlike the ${LOOK_BACK} before it of the same device, by how much these differ among themselves.`,
  pattern: `Readings of one device, one after the other, others may lie between. The alert is over ${OVER_S} s after the last time.`,
};

/** Keep the query of a choice, new or in place of the one that this form made before. */
export async function keepQuery({ name, text }, isOurs) {
  try {
    if (isOurs) await api("PUT", `/v1/queries/${enc(name)}`, { text });
    else await api("POST", "/v1/queries", { text });
  } catch (error) {
    throw new Error(error.message); /* of the query: another version of the rule is not what is missing */
  }
}

/** What a choice would have given: checked as it is typed, computed when somebody asks. */
export function ChoiceTrial({ choice, made }) {
  const [state, setState] = useState({ text: "", said: "", units: {}, rows: null });
  const [minutes, setMinutes] = useState(60);
  const [isBusy, setBusy] = useState(false);
  const text = made?.text ?? "";
  useEffect(() => {
    if (!text) return undefined;
    let over = false;
    const timer = setTimeout(async () => {
      let said = "This can be looked for.";
      try {
        await api("POST", "/v1/queries:check", { text });
      } catch (error) {
        said = faultsOf(error)[0].detail;
      }
      if (!over) setState({ text, said, units: {}, rows: null });
    }, CHECK_AFTER_MS);
    return () => { over = true; clearTimeout(timer); };
  }, [text]);
  const look = async () => {
    setBusy(true);
    try {
      const found = await api("POST", "/v1/queries:preview", { text, minutes, rows: PREVIEW_ROWS });
      setState({ text, said: "", units: found.units, rows: found.rows, isCut: found.is_cut });
    } catch (error) {
      setState({ text, said: error.message, units: {}, rows: null });
    }
    setBusy(false);
  };
  const mine = state.text === text ? state : { said: "", rows: null };
  const hits = mine.rows?.filter((row) => raises(row, choice)) ?? [];
  const span = minutes === 60 ? "hour" : "24 hours";
  const said = text ? mine.said : "Choose what and when: how often it would have fired stands here.";
  return html`<section class="card trial" aria-label="Trial"><h2>Would have fired</h2>
    <label>Over the last <select value=${minutes} onChange=${({ target }) => setMinutes(Number(target.value))}><option value="60">hour</option><option value="1440">24 hours</option></select></label>
    <p role="status">${isBusy ? "computing…" : mine.rows ? `${hits.length ? counted(hits.length, "times") : "Never"} in the last ${span}, ${counted(new Set(hits.map(({ device }) => device)).size, "devices")}.${mine.isCut ? " Only the first rows were looked at." : ""}` : said}</p>
    ${text && html`<p class="actions"><button type="button" disabled=${isBusy} onClick=${look}>Look at the last ${span}</button></p>`}
    ${hits.length > 0 && html`<${Table} rows=${hits.slice(0, ROWS_SHOWN).map((row) => ({ ...row, at: clock(row.window_end) }))} columns=${["at", ...columnsOf(hits).filter((one) => one !== "reading")]} unitOf=${(one) => unitSaid(mine.units[one] ?? "")} caption="What would have raised it" />`}</section>`;
}
