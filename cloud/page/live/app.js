/* The Live page: every stream and query that there is, found by itself. Events only change the model; the document is drawn at a
   fixed pace, so that a burst of a thousand events costs one drawing. */

import { html, render } from "../vendor/htm/standalone.module.js";
import { byId, decode, keepFocus, say, setUpTheme, tellMore } from "../dom.js";
import { showOperations } from "../operations.js";
import { Feed } from "../feed.js";
import { sentence } from "../gaps.js";
import { logInByLink } from "../login.js";
import { STREAMS_MAX, StreamList } from "../streams.js";
import { age } from "./format.js";
import { BoardList, BoardPage, OwnSeries } from "./boards.js";
import { Invitation, QueryCard, StreamCard } from "./cards.js";
import { deviceHref, QueryPage, StreamPage } from "./detail.js";
import { DeviceModel, DevicePage } from "./device.js";
import { Live } from "./model.js";
import { PAST_AGAIN_MS, precede, precedeLines } from "./past.js";

const DRAW_EVERY_MS = 250;
/* A browser opens six connections to a server at once (HTTP/1.1): these leave two for its other requests. */
const FEEDS_MAX = 4;
const PROBLEMS_SHOWN = 6;
const DEVICES_SHOWN = 24; /* that a search finds */

await logInByLink();
const own = new OwnSeries();
const live = Object.assign(new Live(), { own: own.series });
let boardCards = []; /* of the board that is shown */
let boardSources = new Set();
let device = null; /* that is open */
const pinned = new Set(read("pinned"));
let listed = [];
let search = "";
let isListed = false;
let followed = new Set();
const preceded = new Set(); /* models of streams whose past was asked for: one that is made anew has none */
const lined = new WeakSet(); /* those of streams that were opened: their lines have all of the last minutes, whatever came */
let asking = Promise.resolve(); /* one after the other */

setUpTheme(byId("theme"));
keepFocus(byId("live"));
const feeds = Array.from({ length: FEEDS_MAX }, () => new Feed({
  event: (event) => {
    live.take(event, Date.now());
    own.take(event);
    device?.take(event, Date.now());
  },
  watermark: ({ query, watermark }) => live.final(query, watermark),
  gap: (detail) => {
    live.gap(detail, Date.now());
    own.gap(detail);
    device?.gap(detail);
  },
  state: () => {},
}));
const list = new StreamList((streams) => {
  isListed = true;
  listed = streams;
  live.know(listed);
  followOwn();
  openPage();
  follow();
});

/* Each feed keeps what it follows, so that a new stream costs one of them a new connection, and the others nothing. Streams about the
   system itself are followed where a board shows them, or their page is open. */
function follow() {
  const open = location.hash.startsWith("#/boards") ? "" : decode(location.hash.split("/")[2] ?? "");
  const rank = ({ name }) => (boardSources.has(name) || device?.models.get(name)?.heardAt || name === open ? 0 : pinned.has(name) ? 1 : 2);
  const first = listed.filter((one) => !one.of_system || rank(one) === 0).toSorted((a, b) => rank(a) - rank(b));
  const wanted = new Set(first.slice(0, FEEDS_MAX * STREAMS_MAX).map(({ name }) => name));
  const sets = feeds.map((feed) => feed.streams.filter((name) => wanted.has(name)));
  const kept = new Set(sets.flat());
  for (const name of wanted) if (!kept.has(name)) sets.find((set) => set.length < STREAMS_MAX)?.push(name);
  feeds.forEach((feed, i) => feed.follow(sets[i]));
  followed = wanted;
  const models = [...wanted].map((name) => live.streams.get(name)).filter(Boolean);
  for (const stream of preceded) if (!models.includes(stream)) preceded.delete(stream);
  for (const stream of models) if (!preceded.has(stream)) askForPast(stream);
}

function askForPast(stream) {
  preceded.add(stream);
  asking = asking.then(async () => {
    if (!preceded.has(stream) || (await precede(stream))) return;
    await new Promise((go) => setTimeout(go, PAST_AGAIN_MS));
    if (preceded.has(stream)) askForPast(stream); /* behind the others */
  });
}

const followOwn = () => own.follow(boardCards, (name) => live.streams.has(name));

/** What the page of the address needs beside the feed: the past of a device that it names, and of a stream the lines that its card has not. */
function openPage() {
  const [, kind, name] = location.hash.split("/").map(decode);
  const stream = kind === "streams" ? live.streams.get(name) : null;
  if (stream?.isPastKnown && !lined.has(stream)) {
    lined.add(stream);
    precedeLines(stream);
  }
  const opened = kind === "devices" && name ? name : null;
  if (device && device.name !== opened) {
    device.isLeft = true;
    device = null;
  }
  if (opened === null) return;
  device ??= new DeviceModel(opened);
  if (isListed) device.know(new Set(live.streams.keys()));
  const names = [...live.streams.values()].filter((one) => !one.isOfSystem).toSorted((a, b) => b.devices.has(opened) - a.devices.has(opened)).map((one) => one.name);
  device.ask(names).then(follow);
}

function showBoard(cards) {
  boardCards = cards;
  boardSources = new Set(cards.map(({ source }) => source));
  followOwn();
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
  follow();
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
  const streams = live.ordered(pinned, now).filter(({ name }) => has(name));
  const queries = [...live.queries.values()].filter(({ name }) => has(name));
  const devices = search ? live.devicesCalled(has) : [];
  const left = listed.filter((one) => !one.of_system).length - FEEDS_MAX * STREAMS_MAX;
  const problems = live.problems(now);
  const isConnected = connection()[0] === "live";
  if (!isListed) return html`<p class="card quiet" role="status">${list.problem ? `${list.problem}; it is asked again` : "loading…"}</p>`;
  return html`${problems.length > 0 && html`<ul class="card problems" aria-label="Problems">${problems.slice(0, PROBLEMS_SHOWN).map(({ href, text }) => html`<li key=${href}><a href=${href}>${text}</a></li>`)}
      ${problems.length > PROBLEMS_SHOWN && html`<li>and ${problems.length - PROBLEMS_SHOWN} more</li>`}</ul>`}
    ${devices.length > 0 && html`<section class="card found"><h2>Devices</h2><ul class="board-list">${devices.slice(0, DEVICES_SHOWN).map(([name, names]) => html`<li key=${name}><a href=${deviceHref(name)}>${name}</a> <small>${names.join(", ")}</small></li>`)}</ul>
      ${devices.length > DEVICES_SHOWN && html`<p class="quiet">and ${devices.length - DEVICES_SHOWN} more: type more of the name</p>`}</section>`}
    ${search && !devices.length && !streams.length && !queries.length && html`<p class="card quiet">Nothing is called “${search}” that sent lately. <a href=${deviceHref(search)}>Look for a device of exactly this name</a></p>`}
    <div class="cards">${streams.map((stream) => html`<${StreamCard} key=${stream.name} stream=${stream} now=${now} isPinned=${pinned.has(stream.name)} isFollowed=${followed.has(stream.name)} onPin=${pin} />`)}
      ${queries.map((query) => html`<${QueryCard} key=${query.name} query=${query} now=${now} isFollowed=${followed.has(query.name)} isConnected=${isConnected} />`)}
      ${!search && streams.length < 3 && html`<${Invitation} mqtt=${{ host: location.hostname, port: Number(location.port || 8700) + 10 }} />`}</div>
    ${left > 0 && html`<p class="quiet">${left} of these are not followed: this page follows ${FEEDS_MAX * STREAMS_MAX} streams and queries. One that you open or pin is followed.</p>`}`;
}

function View({ now }) {
  const [, kind, name] = location.hash.split("/").map(decode);
  if (kind === "streams") return html`<${StreamPage} key=${name} stream=${live.streams.get(name)} now=${now} />`;
  if (kind === "queries") return html`<${QueryPage} key=${name} query=${live.queries.get(name)} />`;
  if (kind === "devices" && device) return html`<${DevicePage} key=${name} device=${device} live=${live} now=${now} isListed=${isListed} />`;
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
addEventListener("hashchange", () => {
  openPage();
  follow();
  draw();
  byId("live").focus({ preventScroll: true });
});
showOperations();
tellMore(byId("live"));
setInterval(draw, DRAW_EVERY_MS);
openPage();
draw();
globalThis.edgewakeLive = { live, feeds, device: () => device };
