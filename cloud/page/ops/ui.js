/* What the screens have in common: a list that is loaded again and again, with its four states; tables, buttons, facts. */

import { html, useEffect, useState } from "../vendor/htm/standalone.module.js";
import { isLong } from "../live/cards.js";
import { age, cell, clock, moment, whole, words } from "../live/format.js";

export const AGAIN_MS = 3_000;

/** Load now and every few seconds; what was loaded last stays while something is wrong. `key` changes: begin anew. */
export function useLoaded(load, key, againMs = AGAIN_MS) {
  const [state, setState] = useState({ key, data: null, error: null, at: 0 });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer;
    let over = false;
    const look = async () => {
      try {
        const data = await load();
        if (!over) setState({ key, data, error: null, at: Date.now() });
      } catch (error) {
        if (!over) setState((before) => ({ ...(before.key === key ? before : { key, data: null, at: 0 }), error }));
      }
      if (!over) timer = setTimeout(look, againMs);
    };
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [key, turn]);
  const mine = state.key === key ? state : { data: null, error: null, at: 0 };
  return { ...mine, again: () => setTurn(turn + 1) };
}

/** What somebody types over what is kept: [text, set, isTyped]. It follows `kept` until he types, and again once his is what is kept; no load and no redraw takes it from him. */
export function useDraft(kept) {
  const [typed, setTyped] = useState(null);
  useEffect(() => {
    if (typed === kept) setTyped((now) => (now === kept ? null : now)); /* he may have typed on before this runs */
  }, [typed, kept]);
  return [typed ?? kept, setTyped, typed !== null];
}

/** The four states of what is loaded: loading, wrong, empty with what to do, and there (perhaps old). */
export function Loaded({ loaded, empty, children }) {
  const { data, error, at, again } = loaded;
  const wrong = error?.status === 401 ? html`<p class="card wrong" role="alert">Your session is over: it ended, or the server was started again. <a href="/in" target="_blank">Log in again</a> in another tab, with a key or as yourself: this one goes on by itself, with what you typed. Without either, <code>edgewake open</code> on the server's machine makes a link.</p>` : error && html`<p class="card wrong" role="alert">${error.message}${at > 0 && html`; what you see is of ${age(Date.now() - at)}`} <button type="button" onClick=${again}>Try again</button></p>`;
  if (data === null) return wrong || html`<p class="card quiet" role="status">loading…</p>`;
  const isEmpty = Array.isArray(data) ? data.length === 0 : data.items && data.items.length === 0;
  return html`${wrong}${isEmpty && empty ? html`<p class="card quiet">${empty}</p>` : children(data)}`;
}

/** A table. `columns`: [name, heading, options]; options: number, unit (behind the heading), wraps (a text of several lines), view(row), by(row): what it is sorted by, where the row itself has no such value.
    `sorts`: a press on a heading sorts what is here, so only where all of it is; `order`: {by, link(name)} where the server sorts;
    `finds(row)`: the text by which a row of a long list is found; `total`: of how many these are. */
export function Rows({ rows, columns, caption, sorts, order, finds, total = rows.length }) {
  const [sorted, setSorted] = useState(null);
  const [most, setMost] = useState(ROWS_SHOWN);
  const [find, setFind] = useState("");
  const keyOf = ([name, , { by } = {}], row) => (by ? by(row) : row[name]);
  const chosen = sorted && columns.find(([name]) => name === sorted.name);
  const isLongList = finds && rows.length > FIND_FROM;
  const found = isLongList && find ? rows.filter((row) => has(finds(row), find)) : rows;
  const inOrder = chosen ? found.toSorted((a, b) => sorted.way * compared(keyOf(chosen, a), keyOf(chosen, b))) : found;
  const shown = inOrder.slice(0, most);
  const left = inOrder.length - shown.length;
  const press = (column) => () => setSorted(sorted?.name === column[0] ? { ...sorted, way: -sorted.way } : { name: column[0], way: column[2]?.number ? -1 : 1 });
  const head = (column) => {
    const [name, heading, { number, unit } = {}] = column;
    const text = unit ? html`${heading ?? words(name)} <small>${unit}</small>` : (heading ?? words(name));
    if (order?.link(name)) return html`<th scope="col" role="columnheader" class=${number ? "n" : ""} aria-sort=${order.by === name ? (name === "device" ? "ascending" : "descending") : null}><a href=${order.link(name)}>${text}</a></th>`;
    const isSortable = sorts && name && rows.some((row) => ["number", "string"].includes(typeof keyOf(column, row)));
    if (!isSortable) return html`<th scope="col" role="columnheader" class=${number ? "n" : ""}>${text}</th>`;
    const way = sorted?.name === name ? { 1: "ascending", [-1]: "descending" }[sorted.way] : null;
    return html`<th scope="col" role="columnheader" class=${number ? "n" : ""} aria-sort=${way}><button type="button" class="sort" onClick=${press(column)}>${text}</button></th>`;
  };
  return html`${isLongList && html`<p class="actions"><label>Find <input type="search" aria-label=${`Find in ${caption}`} value=${find} onInput=${({ target }) => setFind(target.value)} /></label><small role="status">${find ? `${whole(found.length)} of ${whole(total)}` : whole(total)}</small></p>`}
  <div class="card scroll rows" tabindex="0" role="region" aria-label=${caption}><table role="table">
    <thead role="rowgroup"><tr role="row">${columns.map(head)}</tr></thead>
    <tbody role="rowgroup">${shown.map((row) => html`<tr role="row" key=${row.id ?? row.name ?? row.device ?? row.offset}>${columns.map(([name, heading, { number, unit, view, wraps } = {}]) =>
      html`<td role="cell" class=${number ? "n" : wraps || isLong(row[name]) ? "w" : ""} data-label=${[heading ?? words(name), unit].filter(Boolean).join(", ")}>${view ? view(row) : cell(row[name])}</td>`)}</tr>`)}</tbody>
  </table></div>
  ${left > 0 && html`<p class="actions"><button type="button" onClick=${() => setMost(most + ROWS_SHOWN)}>Show ${Math.min(ROWS_SHOWN, left)} more</button><small>and ${whole(left)} more</small></p>`}
  ${left === 0 && total > rows.length && html`<p class="quiet">and ${whole(total - rows.length)} more, which this page does not list</p>`}`;
}

const ROWS_SHOWN = 500; /* of a list, before somebody asks for more */
const FIND_FROM = 30; /* a list of more has a field that finds */
const has = (text, find) => text.toLowerCase().includes(find.trim().toLowerCase());

const CHOICES_FIND_FROM = 50; /* a choice among more has a field that finds */

/** A choice among names, or among `groups` of them, [heading, names]; among many a field finds. `text`: what stands before it. */
export function Choice({ label, text = label, names, groups = [["", names]], none, required, value, onInput }) {
  const [find, setFind] = useState("");
  const isLongList = groups.reduce((sum, [, of]) => sum + of.length, 0) > CHOICES_FIND_FROM;
  const options = (of) => of.filter((one) => !find || one === value || has(one, find)).map((one) => html`<option value=${one}>${one}</option>`);
  return html`${isLongList && html`<label>find <input type="search" class="short" aria-label="Find a name" value=${find} onInput=${({ target }) => setFind(target.value)} /></label>`}
    <label>${text} <select required=${required} aria-label=${label} value=${value} onChange=${onInput}>
      ${none && html`<option value="">${none}</option>`}${groups.map(([heading, of]) => (heading ? html`<optgroup label=${heading}>${options(of)}</optgroup>` : options(of)))}</select></label>`;
}

/** Numbers by size, texts by their language, and what is not there at the end of what begins with the least. */
const compared = (a, b) => (a == null || b == null ? (a == null) - (b == null) : typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

const GOOD = new Set(["ready", "running", "online", "armed", "idle", "live", "over", "done", "whole"]);
const SOON = new Set(["starting", "restarting", "paused", "silent", "due", "notified", "unknown", "behind", "waiting", "opening", "ending", "acknowledged", "retrying"]);
/** A state as a dot and a word. */
export const State = ({ state }) => html`<span class="state"><i class="dot" data-state=${GOOD.has(state) ? "well" : SOON.has(state) ? "late" : state === "offline" ? "off" : "bad"}></i>${state}</span>`;

/** A time as its age, with the moment in its title. */
export const Ago = ({ at }) => (at ? html`<time title=${moment(at)}>${age(Date.now() - at)}</time>` : "–");

/** A time of day, with date and zone in its title. */
export const At = ({ at }) => (at ? html`<time title=${moment(at)}>${clock(at)}</time>` : "–");

/** A long name that may break behind its dots, slashes and underscores. */
export const Breaks = ({ text }) => text.split(/(?<=[./_])/).map((part, i) => html`${i > 0 && html`<wbr />`}${part}`);

export const Facts = ({ of }) => html`<dl class="card facts-list">${of.map(([name, content]) => html`<div><dt>${name}</dt><dd>${content ?? "–"}</dd></div>`)}</dl>`;

/** A button that does something once and says what came of it. `confirm`: asked before; `label`: what it is called where its words alone do not say; `disabled`: not yet. */
export function Do({ act, confirm: question, done = "done", danger, label, disabled, children }) {
  const [said, setSaid] = useState("");
  const [isBusy, setBusy] = useState(false);
  const onClick = async () => {
    if (question && !confirm(question)) return;
    setBusy(true);
    try {
      const answer = await act();
      setSaid(typeof answer === "string" ? answer : done);
    } catch (error) {
      setSaid(error.message);
    }
    setBusy(false);
  };
  return html`<button type="button" class=${danger ? "danger" : ""} disabled=${isBusy || disabled} aria-label=${label} onClick=${onClick}>${children}</button><span class="said" role="status">${said}</span>`;
}

/** Ways to get the same elsewhere: [where, a line to copy, or a link]. */
export const Ways = ({ of }) => html`<dl class="ways">${of.map(([where, way]) => html`<dt>${where}</dt><dd>${typeof way === "string" ? html`<${Line} text=${way} label=${`Copy the line ${where}`} />` : way}</dd>`)}</dl>`;

/** A line to copy; browsers have a clipboard only where the page came safely. */
export const Line = ({ text, label }) => html`<code>${text}</code>${navigator.clipboard && html` <${Do} act=${() => navigator.clipboard.writeText(text)} done="copied" label=${label}>Copy<//>`}`;

export const bytes = (n) => (n == null ? "–" : n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KB` : `${(n / (1 << 20)).toFixed(1)} MB`);

/** What of the address's parameters is said: an object of those with a value. */
export const kept = (params, names) => Object.fromEntries(names.map((name) => [name, params.get(name) ?? ""]).filter(([, said]) => said));

/** An address of this screen with other parameters; what is empty is left out, and a list begins anew. */
export const linkTo = (path, params, more) => {
  const all = { ...Object.fromEntries(params), after: "", before: "", ...more };
  const query = new URLSearchParams(Object.entries(all).filter(([, said]) => said !== "" && said != null));
  return query.size ? `${path}?${query}` : path;
};

/** Links that choose one of some values; the first is all of them. `label`: what stands before them; `counts`: how many there are of each; `isName`: they are names that people gave. */
export const Chips = ({ path, params, name, values, counts = {}, isName, label }) => html`<p class="chips" role="group" aria-label=${label ?? words(name)}>${label && html`<small>${label}</small>`}${values.map((one) => html`
  <a href=${linkTo(path, params, { [name]: one })} aria-current=${(params.get(name) ?? "") === one ? "true" : "false"}>${one ? (isName ? one : words(one)) : "all"}${counts[one] != null && html` <small>${counts[one]}</small>`}</a>`)}</p>`;

/** To the next page of a list. */
export const More = ({ path, params, next, name = "after", children = "More" }) => (next == null ? "" : html`<p><a href=${linkTo(path, params, { [name]: next })}>${children}</a></p>`);
