/* Boards for who only looks: the list, and one of them, with what its reader may see. They are made on the operations page. */

import { html, useEffect, useState } from "../vendor/htm/standalone.module.js";
import { staleAfter } from "../gaps.js";
import { BoardCard, devicesOf, hasOwn, ownKey } from "../board/card.js";
import { linesOf as chartLines, titleOf } from "../board/model.js";
import { Series } from "./model.js";
import { ANSWER_MAX_MS } from "../streams.js";
import { linesOf } from "./past.js";

const LOOK_MS = 5_000; /* between two looks for a newer version, or a right that ended */
const PAST_DEVICES_MAX = 50; /* of a group, that a chart asks the past of */

/** What `path` gives now and every few seconds: {data, fault}. */
function useKept(path) {
  const [state, setState] = useState({ path, data: null, fault: "" });
  useEffect(() => {
    let timer, over = false;
    const look = async () => {
      let next;
      try {
        const answer = await fetch(path, { signal: AbortSignal.timeout(ANSWER_MAX_MS) });
        const body = await answer.json();
        next = answer.ok ? { path, data: body, fault: "" } : { path, data: null, fault: answer.status === 404 ? "There is no such board, or none for you." : body.detail };
      } catch {
        next = { path, fault: "the server is away" };
      }
      if (over) return;
      setState((before) => ({ data: before.path === path ? before.data : null, ...next }));
      timer = setTimeout(look, LOOK_MS);
    };
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [path]);
  return state.path === path ? state : { data: null, fault: "" };
}

export function BoardList() {
  const { data, fault } = useKept("/v1/boards");
  if (!data) return html`<p class="card quiet" role="status">${fault || "loading…"}</p>`;
  if (data.boards.length === 0) return html`<p class="card quiet">No board shows what you may read. Boards are made on the operations page.</p>`;
  return html`<section class="card"><h2>Boards</h2><ul class="board-list">${data.boards.map(({ name, title, cards }) => html`<li key=${name}>
    <a href=${`#/boards/${encodeURIComponent(name)}`}>${title || name}</a> <small>${cards} ${cards === 1 ? "card" : "cards"}</small></li>`)}</ul></section>`;
}

/** One board. `onBoard(cards)`: what is shown, so that its streams are followed; [] when it is left. */
export function BoardPage({ name, live, now, onBoard }) {
  const { data, fault } = useKept(`/v1/boards/${encodeURIComponent(name)}`);
  const cards = data?.cards ?? [];
  const key = JSON.stringify(cards);
  useEffect(() => {
    onBoard(cards);
    return () => onBoard([]);
  }, [key]);
  const [ground, setGround] = useState(null);
  return html`<nav class="crumbs"><a href="#/boards">Boards</a> › ${name}</nav>
    ${fault && html`<p class="card quiet" role="alert">${fault}</p>`}
    ${data && html`<p class="actions board-head"><b class="lead">${data.title || data.name}</b><button type="button" onClick=${() => ground.requestFullscreen()}>Full screen</button></p>
      <div class="board-ground" ref=${setGround}><div class="grid">${cards.map((card, i) => html`<section role="group" class="card" key=${card.source + i} aria-label=${titleOf(card) || "Text"}
        style=${{ gridColumn: `${card.x + 1} / span ${card.w}`, gridRow: `${card.y + 1} / span ${card.h}` }}><${BoardCard} card=${card} live=${live} now=${now} /></section>`)}</div></div>`}`;
}

/** Series of the charts of the board that is shown: of devices and groups, each with its past; of all devices only what came before the page
    was opened, since the models of streams have the rest. */
export class OwnSeries {
  constructor() {
    this.series = new Map();
    this.wanted = [];
  }

  /** From now on those of these cards, each with its past. `isStream(name)`: not a query, whose windows its model keeps. */
  follow(cards, isStream) {
    const charts = cards.flatMap(chartLines).filter(({ source }) => isStream(source));
    this.wanted = [...new Map(charts.map((card) => [ownKey(card), { ...card, devices: hasOwn(card) ? new Set(devicesOf(card)) : null }])).entries()];
    for (const key of this.series.keys()) if (!this.wanted.some(([one]) => one === key)) this.series.delete(key);
    for (const [key, card] of this.wanted) if (!this.series.has(key)) this.#begin(key, card);
  }

  async #begin(key, { source, field, devices }) {
    const series = new Series();
    this.series.set(key, series);
    if (devices && (devices.size === 0 || devices.size > PAST_DEVICES_MAX)) return; /* then the chart begins now */
    const past = await linesOf(source, [field], devices).catch(() => null);
    if (past) series.precede(past.get(field));
  }

  gap(detail) {
    const stale = staleAfter(detail);
    for (const [key, card] of this.wanted) if (stale.includes(card.source)) this.#begin(key, card);
  }

  take(event) {
    for (const [key, { source, field, devices }] of this.wanted) {
      if (event.stream === source && devices?.has(event.device) && typeof event[field] === "number") this.series.get(key).take(event[field], event.t);
    }
  }
}
