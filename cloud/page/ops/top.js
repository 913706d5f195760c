/* The top line: the search, the time of the charts, how it is, who I am. */

import { html } from "../vendor/htm/standalone.module.js";
import { logOut } from "../login.js";
import { get } from "./api.js";
import { Range } from "./range.js";
import { Search } from "./search.js";
import { useLoaded } from "./ui.js";

const LOOK_MS = 10_000; /* between two looks at what is wrong */
const NOW = new Set(["operations", "part", "query", "alert"]); /* act now; of all else: look soon */
const WITH_TIME = new Set(["devices", "boards"]); /* whose pages of one thing have charts with a past */

export function Top({ screen, name, params }) {
  const hasTime = name && WITH_TIME.has(screen) && !params.get("edit");
  const path = `#/${screen}/${encodeURIComponent(name)}`;
  return html`<${Search} />${hasTime && html`<${Range} key=${`${path}?${params}`} path=${path} params=${params} />`}<${Pill} /><${Who} />`;
}

/** What problems ask for: well, late (look soon) or bad (act now). */
export function stateOf(problems) {
  if (problems.length === 0) return "well";
  return problems.some(({ kind }) => NOW.has(kind)) ? "bad" : "late";
}

/** How it is in a word, on every page; it leads to what is wrong. */
function Pill() {
  const { data, error } = useLoaded(() => get("/v1/overview"), "pill", LOOK_MS);
  const problems = data?.problems ?? [];
  const isKnown = data !== null && !error;
  const state = isKnown ? stateOf(problems) : "unknown";
  const text = !isKnown ? (error ? "not known" : "…") : problems.length === 0 ? "all well" : problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  return html`<a class="pill" href="#/" aria-label=${`How it is: ${text}`}><i class="dot" data-state=${state}></i>${text}</a>`;
}

const MAY = { read: "may look", operate: "may operate" };

function Who() {
  const { data } = useLoaded(() => get("/v1/session"), "who", 60_000);
  const leave = async () => {
    const out = await logOut();
    location.assign(out === "/" ? "/in" : out);
  };
  return html`<span class="who" role="group" aria-label="Who I am">${data && html`<b title=${data.name}>${data.name}</b> <small>${MAY[data.role]}</small>`}</span>
    <button id="leave" type="button" onClick=${leave}>Log out</button>`;
}
