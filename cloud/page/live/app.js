/* The Live page: every stream and query that there is, found by itself. Events only change the model; the document is drawn at a
   fixed pace, so that a burst of a thousand events costs one drawing. */

import { html, render } from "../vendor/htm/standalone.module.js";
import { byId, decode, say, setUpTheme } from "../dom.js";
import { Feed } from "../feed.js";
import { sentence } from "../gaps.js";
import { logInByLink } from "../login.js";
import { STREAMS_MAX, StreamList } from "../streams.js";
import { age } from "./format.js";
import { BoardList, BoardPage, OwnSeries } from "./boards.js";
import { Invitation, QueryCard, StreamCard } from "./cards.js";
import { QueryPage, StreamPage } from "./detail.js";
import { Live } from "./model.js";

const DRAW_EVERY_MS = 250;
/* A browser opens six connections to a server at once (HTTP/1.1): these leave two for its other requests. */
const FEEDS_MAX = 4;
/* Written by the system about itself: the town and the operations pages show them. */
const SYSTEM = new Set(["part_status"]);

await logInByLink();
const own = new OwnSeries();
const live = Object.assign(new Live(), { own: own.series });
let boardSources = new Set(); /* of the board that is shown */
const pinned = new Set(read("pinned"));
let listed = [];
let search = "";
let isListed = false;

setUpTheme(byId("theme"));
const feeds = Array.from({ length: FEEDS_MAX }, () => new Feed({
  event: (event) => {
    live.take(event, Date.now());
    own.take(event);
  },
  watermark: ({ query, watermark }) => live.final(query, watermark),
  gap: (detail) => live.gap(detail, Date.now()),
  state: () => {},
}));
const list = new StreamList((streams) => {
  isListed = true;
  listed = streams.filter(({ name }) => !SYSTEM.has(name));
  live.know(listed);
  follow();
});

/* Each feed keeps what it follows, so that a new stream costs one of them a new connection, and the others nothing. */
function follow() {
  const first = listed.toSorted((a, b) => boardSources.has(b.name) - boardSources.has(a.name));
  const wanted = new Set(first.slice(0, FEEDS_MAX * STREAMS_MAX).map(({ name }) => name));
  const sets = feeds.map((feed) => feed.streams.filter((name) => wanted.has(name)));
  const followed = new Set(sets.flat());
  for (const name of wanted) if (!followed.has(name)) sets.find((set) => set.length < STREAMS_MAX)?.push(name);
  feeds.forEach((feed, i) => feed.follow(sets[i]));
}

function showBoard(cards) {
  boardSources = new Set(cards.map(({ source }) => source));
  own.follow(cards);
  follow();
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "[]");
  } catch {
    return []; /* the browser keeps nothing for this page, or something else wrote it */
  }
}

function pin(name) {
  if (!pinned.delete(name)) pinned.add(name);
  try {
    localStorage.setItem("pinned", JSON.stringify([...pinned]));
  } catch {
    /* then it lasts as long as the page */
  }
  draw();
}

function connection() {
  const used = feeds.filter((feed) => feed.streams.length);
  if (list.problem) return ["reconnecting", list.problem];
  if (!isListed) return ["connecting", ""];
  const waiting = used.find((feed) => feed.state !== "live");
  if (!waiting) return ["live", ""];
  const again = waiting.retryAt ? Math.ceil((waiting.retryAt - Date.now()) / 1000) : 0;
  return [waiting.state, again > 0 ? `again in ${again} s` : ""];
}

function drawFrame(now) {
  const [state, why] = connection();
  byId("connection").dataset.state = state;
  say(byId("connection-seen"), why ? `${state}: ${why}` : state);
  say(byId("connection-spoken"), state);
  const gaps = byId("gaps");
  gaps.hidden = live.gaps.length === 0;
  if (live.gaps.length) say(byId("gaps-newest"), `${live.gaps.length} ${live.gaps.length === 1 ? "gap" : "gaps"}`);
  render(html`${live.gaps.slice(0, 12).map((gap) => html`<li>${sentence(gap)}, ${age(now - gap.at)}</li>`)}`, byId("gaps-list"));
  byId("town").hidden = !live.streams.has("vehicle_position");
}

function Front({ now }) {
  const has = (name) => name.toLowerCase().includes(search.toLowerCase());
  const streams = live.ordered(pinned).filter(({ name }) => has(name));
  const queries = [...live.queries.values()].filter(({ name }) => has(name));
  const left = listed.length - FEEDS_MAX * STREAMS_MAX;
  return html`${search && !streams.length && !queries.length && html`<p class="card quiet">Nothing is called “${search}”.</p>`}
    <div class="cards">${streams.map((stream) => html`<${StreamCard} key=${stream.name} stream=${stream} now=${now} isPinned=${pinned.has(stream.name)} onPin=${pin} />`)}
      ${queries.map((query) => html`<${QueryCard} key=${query.name} query=${query} now=${now} />`)}
      ${isListed && !search && streams.length < 3 && html`<${Invitation} mqtt=${{ host: location.hostname, port: Number(location.port || 8700) + 10 }} />`}</div>
    ${left > 0 && html`<p class="quiet">${left} more streams are not followed here: this page follows ${FEEDS_MAX * STREAMS_MAX}.</p>`}`;
}

function View({ now }) {
  const [, kind, name] = location.hash.split("/").map(decode);
  if (kind === "streams") return html`<${StreamPage} key=${name} stream=${live.streams.get(name)} now=${now} />`;
  if (kind === "queries") return html`<${QueryPage} key=${name} query=${live.queries.get(name)} />`;
  if (kind === "boards") return name ? html`<${BoardPage} key=${name} name=${name} live=${live} now=${now} onBoard=${showBoard} />` : html`<${BoardList} />`;
  return html`<${Front} now=${now} />`;
}

function draw() {
  const now = Date.now();
  const isBoards = location.hash.startsWith("#/boards");
  byId("to-live").toggleAttribute("aria-current", !isBoards);
  byId("to-boards").toggleAttribute("aria-current", isBoards);
  drawFrame(now);
  render(html`<${View} now=${now} />`, byId("live"));
}

byId("search").addEventListener("input", ({ target }) => {
  search = target.value.trim();
  draw();
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input, textarea")) return;
  event.preventDefault();
  byId("search").focus();
});
addEventListener("hashchange", draw);
setInterval(draw, DRAW_EVERY_MS);
draw();
globalThis.edgewakeLive = { live, feeds };
