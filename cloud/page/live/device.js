/* One device, for who only looks: a card of each of its streams, as far as its reader may see them, with its numbers and what it lost. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { sentence, staleAfter } from "../gaps.js";
import { STATES } from "./cards.js";
import { Chart, sinceOf } from "./detail.js";
import { COLOURS, LinesChart } from "./lines.js";
import { age, called, cell, moment, sizedUnit, value, words } from "./format.js";
import { PlaceMap } from "./map.js";
import { Series, StreamModel } from "./model.js";
import { linesOf, PAST_AGAIN_MS, precedeDevice, precedeLatest } from "./past.js";

const GAPS_SHOWN = 12;
const LATEST_AGAIN_MS = 15_000; /* a reader may ask few streams at once for what is older than the last minutes */

/** What is known of a device: a model of each of its streams, and its gaps. */
export class DeviceModel {
  constructor(name) {
    this.name = name;
    this.models = new Map(); /* stream -> a model that knows of this device alone */
    this.gaps = [];
    this.beside = new Map(); /* "stream device" of others that it is compared with -> field -> series */
    this.waiting = 0; /* streams that did not answer yet what came lately */
    this.older = 0; /* streams of which an older reading is still looked for */
    this.isLeft = false; /* its page was left */
  }

  /** The streams of which something is known, by name. */
  get streams() {
    return [...this.models.values()].filter((one) => one.heardAt !== null).sort((a, b) => a.name.localeCompare(b.name));
  }

  /** `names`: the streams that there are for its reader. What is known of others goes: they were erased, or are not his any more. */
  know(names) {
    for (const name of this.models.keys()) if (!names.has(name)) this.models.delete(name);
    for (const key of this.beside.keys()) if (!names.has(key.split(" ")[0])) this.beside.delete(key);
    this.gaps = this.gaps.filter(({ stream }) => names.has(stream));
  }

  /** Ask what came before on these streams, one after the other, each once and until it is answered. */
  async ask(names) {
    const asked = names.filter((name) => !this.models.get(name)?.isAsked);
    asked.forEach((name) => (this.#of(name).isAsked = true));
    this.waiting += asked.length;
    this.older += asked.length;
    for (const name of asked) {
      await this.#until(PAST_AGAIN_MS, () => precedeDevice(this.#of(name), this.name, (gap) => this.gap(gap)));
      this.waiting -= 1;
    }
    for (const name of asked) {
      if (this.#of(name).heardAt === null) await this.#until(LATEST_AGAIN_MS, () => precedeLatest(this.#of(name), this.name));
      this.older -= 1;
    }
  }

  async #until(againMs, isDone) {
    while (!this.isLeft && !(await isDone())) await new Promise((go) => setTimeout(go, againMs));
  }

  take(event, now) {
    if (event.device === this.name && event.stream) this.#of(event.stream).take(event, now);
    for (const [field, series] of this.beside.get(`${event.stream} ${event.device}`) ?? []) if (typeof event[field] === "number") series.take(event[field], event.t);
  }

  /** Keep the numbers of another device of a stream too, from its last minutes on. */
  async compare(stream, device, fields) {
    const key = `${stream} ${device}`;
    if (this.beside.has(key)) return;
    const lines = new Map(fields.map((field) => [field, new Series()]));
    this.beside.set(key, lines);
    const past = await linesOf(stream, fields, [device]).catch(() => null);
    for (const [field, line] of past ?? []) lines.get(field).precede(line);
  }

  /** A gap of the device, once: what was read from the past comes again by the feed. Nothing came between the reading before it and its own time. */
  gap(gap) {
    for (const name of staleAfter(gap)) this.#beginAnew(name);
    const isKnown = this.gaps.some((one) => one.stream === gap.stream && one.epoch === gap.epoch && one.seq === gap.seq && one.reason === gap.reason);
    if (gap.scope !== "device" || gap.device !== this.name || isKnown) return;
    this.gaps.unshift(gap);
    this.gaps.length = Math.min(this.gaps.length, GAPS_SHOWN);
  }

  /** Its past is asked for with the next question. */
  #beginAnew(name) {
    this.models.delete(name);
    this.gaps = this.gaps.filter(({ stream }) => stream !== name);
    for (const [key, lines] of [...this.beside]) {
      const [stream, device] = key.split(" ");
      if (stream !== name) continue;
      this.beside.delete(key);
      this.compare(stream, device, [...lines.keys()]);
    }
  }

  #of(name) {
    if (!this.models.has(name)) this.models.set(name, new StreamModel(name));
    return this.models.get(name);
  }
}

/** `live`: the streams that there are, with the units of their fields; `isListed`: are they known? */
export function DevicePage({ device, live, now, isListed }) {
  const { name, streams, gaps } = device;
  const crumbs = html`<nav class="crumbs"><a href="#/">Live</a> › ${name}</nav>`;
  if (streams.length === 0) {
    if (device.waiting > 0 || !isListed) return html`${crumbs}<p class="card quiet" role="status">loading…</p>`;
    if (device.older > 0) return html`${crumbs}<p class="card quiet" role="status">Nothing of it in the last 15 minutes; what came before is looked for.</p>`;
    return html`${crumbs}<p class="card quiet">There is no such device, or none for you. <a href="#/">All streams</a></p>`;
  }
  const heardAt = Math.max(...streams.map((one) => one.heardAt));
  const states = streams.map((one) => one.state(now));
  const state = states.includes("well") ? "well" : states[0];
  return html`${crumbs}
    <section class="card head"><h2><i class="dot" data-state=${state} title=${STATES[state]}></i>${name}</h2>
      <p class="facts">${STATES[state]} · ${streams.length} ${streams.length === 1 ? "stream" : "streams"} · <time data-state=${state} title=${moment(heardAt)}>${age(now - heardAt)}</time></p></section>
    ${gaps.length > 0 && html`<section class="card"><h2>What is missing</h2><ul class="missing">${gaps.map((gap) => html`<li key=${`${gap.stream} ${gap.epoch} ${gap.seq}`}>${sentence({ ...gap, device: "" })}, <time title=${moment(gap.received_at)}>${age(now - gap.received_at)}</time></li>`)}</ul></section>`}
    ${streams.map((stream) => html`<${OfStream} key=${stream.name} device=${device} stream=${stream} infos=${live.streams.get(stream.name)} now=${now} />`)}`;
}

/** What it sends on one stream. `infos`: the stream of all devices, which knows the units. */
function OfStream({ device, stream, infos, now }) {
  const state = stream.state(now);
  const unitOf = (field) => infos?.unitOf(field) ?? "";
  const numbers = stream.shown.filter(([, { kind, state: series }]) => kind === "number" && series.steps.length > 1);
  const missing = device.gaps.filter((gap) => gap.stream === stream.name).map((gap) => spanOf(gap, stream));
  const [fields, setFields] = useState([]); /* that are laid into one chart */
  const [others, setOthers] = useState([]); /* devices that it is compared with */
  const together = numbers.filter(([field]) => fields.includes(field));
  const linesIn = (field, series) => [device.name, ...others].map((name) => ({ name, label: name, unit: unitOf(field), steps: name === device.name ? series.steps : (device.beside.get(`${stream.name} ${name}`)?.get(field)?.steps ?? []) }));
  return html`<section class="card" aria-label=${`${device.name} on ${stream.name}`} role="group">
      <header class="head"><h2><i class="dot" data-state=${state} title=${STATES[state]}></i><a href=${`#/streams/${encodeURIComponent(stream.name)}`}>${stream.name}</a></h2>
        <p class="facts"><time data-state=${state} title=${moment(stream.heardAt)}>${age(now - stream.heardAt)}</time></p></header>
      <div class="fields">${stream.shown.map(([field]) => html`<${Latest} key=${field} name=${field} latest=${stream.devices.get(device.name)?.[field]} unit=${unitOf(field)} />`)}</div>
      ${stream.hasPlace && html`<${PlaceMap} stream=${stream} /><p class="quiet">${placeOf(stream.devices.get(device.name))}</p>`}</section>
    ${numbers.length > 0 && html`<section class="card"><${Together} device=${device} stream=${stream} infos=${infos} numbers=${numbers.map(([field]) => field)} fields=${fields} setFields=${setFields} others=${others} setOthers=${setOthers} />
      ${together.length > 1 && html`<${LinesChart} title=${`${stream.name}, in one chart`} lines=${together.map(([field, { state: series }]) => ({ name: field, label: called(field, unitOf(field)), unit: unitOf(field), steps: series.steps }))} />`}</section>
    <div class="charts">${numbers.map(([field, { state: series }]) => html`<section class="card" key=${field}>
      <h2>${called(field, unitOf(field))} <small>${[unitOf(field), stream.name, sinceOf(series.steps, now)].filter(Boolean).join(", ")}</small></h2>
      ${others.length ? html`<${LinesChart} title=${words(field)} lines=${linesIn(field, series)} />` : html`<${Chart} steps=${series.steps} name=${field} gaps=${missing} />`}</section>`)}</div>`}`;
}

/** Which fields are laid into one chart, and with which devices of its stream this one is compared. */
function Together({ device, stream, infos, numbers, fields, setFields, others, setOthers }) {
  const id = `devices of ${stream.name}`;
  const known = [...(infos?.devices.keys() ?? [])].filter((name) => name !== device.name && !others.includes(name));
  const toggle = (field) => setFields(fields.includes(field) ? fields.filter((one) => one !== field) : [...fields, field]);
  const add = ({ target }) => {
    if (!known.includes(target.value)) return;
    device.compare(stream.name, target.value, numbers);
    setOthers([...others, target.value]);
    target.value = "";
  };
  return html`<p class="together">
    ${numbers.length > 1 && html`<span role="group" aria-label=${`Fields of ${stream.name} in one chart`}>In one chart: ${numbers.map((field) => html`<label key=${field}><input type="checkbox" checked=${fields.includes(field)} disabled=${!fields.includes(field) && fields.length >= COLOURS} onChange=${() => toggle(field)} /> ${words(field)}</label> `)}</span>`}
    ${others.length < COLOURS - 1 && html`<label>Compare with <input list=${id} placeholder="another device" spellcheck=${false} autocomplete="off" aria-label=${`Compare with another device on ${stream.name}`} onChange=${add} onInput=${(event) => event.inputType === "insertReplacementText" && add(event)} /></label><datalist id=${id}>${known.map((name) => html`<option value=${name} />`)}</datalist>`}
    ${others.map((name) => html`<button type="button" key=${name} onClick=${() => setOthers(others.filter((one) => one !== name))} aria-label=${`Compare with ${name} no more`}>${name} ×</button>`)}</p>`;
}

function Latest({ name, latest, unit }) {
  const isNumber = typeof latest === "number";
  const { unit: shownUnit, by } = isNumber ? sizedUnit(latest, unit) : { unit, by: 1 };
  const said = { number: () => value(latest / by), boolean: () => (latest ? "on" : "off"), undefined: () => "–" }[typeof latest] ?? (() => (latest === null ? "–" : String(latest)));
  return html`<div class="field" data-field=${name}><span class="label" title=${name}>${called(name, unit)}</span>
    <span class=${isNumber ? "measured" : "measured said"}><b class="figure">${said()}</b>${shownUnit && isNumber && html`<small>\u2009${shownUnit}</small>`}</span></div>`;
}

const placeOf = (reading) => `${cell(reading?.lat, "lat")}°, ${cell(reading?.lon, "lon")}°`;

/** From the last reading before a gap to when it was said, in ms. */
function spanOf({ received_at: at }, { newest }) {
  const before = newest.find(({ received_at: came }) => came < at);
  return [before?.received_at ?? at, at];
}
