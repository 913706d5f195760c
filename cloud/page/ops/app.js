/* The operations pages. The address says what is shown (#/devices/car-07?…), so a colleague who opens the link sees the same. */

import { html, render } from "../vendor/htm/standalone.module.js";
import { byId, decode, keepFocus, setUpTheme, tellMore } from "../dom.js";
import { AlertRule, Alerts } from "./alerts.js";
import { Ask } from "./ask.js";
import { Board, Boards } from "./boards.js";
import { Clients } from "./clients.js";
import { Deliveries } from "./deliveries.js";
import { Device } from "./device.js";
import { Devices } from "./devices.js";
import { Enrolment } from "./enrolment.js";
import { Erasure, Erasures } from "./erasures.js";
import { Faults } from "./faults.js";
import { Gaps } from "./gaps.js";
import { Histories } from "./history.js";
import { Letter, Letters } from "./letters.js";
import { Audit } from "./more.js";
import { Overview } from "./overview.js";
import { Queries, Query } from "./queries.js";
import { Editor } from "./query_editor.js";
import { Rail } from "./rail.js";
import { Stream, Streams } from "./streams.js";
import { Summaries, SummaryPage } from "./summaries.js";
import { Top } from "./top.js";
import { Trace } from "./trace.js";

const SCREENS = [
  ["", "System", Overview],
  ["boards", "Boards", Boards, Board],
  ["alerts", "Alerts", Alerts, AlertRule],
  ["devices", "Devices", Devices, Device],
  ["streams", "Streams", Streams, Stream],
  ["queries", "Queries", Queries, Query],
  ["ask", "Ask", Ask],
  ["summaries", "Summaries", Summaries, SummaryPage],
  ["letters", "Letters", Letters, Letter],
  ["clients", "Clients", Clients],
  ["trace", "Trace", Trace],
  ["history", "History", Histories],
  ["audit", "Audit", Audit],
  ["deliveries", "Deliveries", Deliveries],
  ["enrolment", "Enrolment", Enrolment],
  ["erasures", "Erasures", Erasures, Erasure],
  ["faults", "Faults", Faults],
  ["gaps", "Gaps", Gaps],
];
/* Screens that are not on the rail -> the one on it that they belong to. */
const BELONGS = { deliveries: "clients", enrolment: "devices", erasures: "audit", faults: "", gaps: "" };
const ON_THE_RAIL = SCREENS.filter(([key]) => !(key in BELONGS));

/** What an address says: {screen, name, query}. */
function placeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [screen, name] = path.split("/").map(decode);
  return { screen, name, query };
}

function View({ hash }) {
  const { screen, name, query } = placeOf(hash);
  const params = new URLSearchParams(query ?? "");
  const [, title, List, One] = SCREENS.find(([key]) => key === screen) ?? [];
  if (!List) return html`<h1 class="spoken">No page</h1><p class="card">There is no page at this address. <a href="#/">To the overview</a></p>`;
  document.title = `${name ?? title} · Edgewake operations`;
  const key = `${screen}/${name ?? ""}?${query ?? ""}`;
  const shown = screen === "queries" && name === "new" ? html`<${Editor} key=${key} params=${params} />`
    : name && One ? html`<${One} key=${key} name=${name} params=${params} />` : html`<${List} key=${key} params=${params} />`;
  return html`<h1 class="spoken">${title}</h1>${shown}`;
}

function draw() {
  const { screen, name, query } = placeOf(location.hash);
  render(html`<${Rail} screens=${ON_THE_RAIL} here=${BELONGS[screen] ?? screen} isWithin=${screen in BELONGS || Boolean(name)} />`, byId("rail"));
  render(html`<${Top} screen=${screen} name=${name} params=${new URLSearchParams(query ?? "")} />`, byId("top"));
  render(html`<${View} hash=${location.hash} />`, byId("screen"));
  byId("rail").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

setUpTheme(byId("theme"));
keepFocus(byId("screen"));
tellMore(byId("screen"));
addEventListener("hashchange", () => {
  draw();
  byId("screen").focus({ preventScroll: true });
});
draw();
