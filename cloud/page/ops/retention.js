/* How long Kafka keeps the readings of a stream: shown, and changed. */

import { html } from "../vendor/htm/standalone.module.js";
import { counted, value } from "../live/format.js";
import { api, enc, get } from "./api.js";
import { Do, useDraft, useLoaded } from "./ui.js";

const AGAIN_MS = 30_000;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const GIGABYTE = 1 << 30;

/** `7 days`, `36 h`; without end where there is none. */
export function keptFor(ms) {
  if (ms === null) return "without end";
  return ms % DAY_MS === 0 || ms > 3 * DAY_MS ? counted(Math.round(ms / DAY_MS), "days") : `${value(ms / HOUR_MS)} h`;
}

export function Retention({ stream }) {
  const { data, error, again } = useLoaded(() => get(`/v1/streams/${enc(stream)}/retention`), `retention ${stream}`, AGAIN_MS);
  return html`<section class="card"><h2>How long it is kept <small>in Kafka; the lake keeps its own</small></h2>
    ${error && html`<p class=${error.status === 404 ? "quiet" : "fault"} role="alert">${error.message}</p>`}
    ${data && html`<${Form} stream=${stream} found=${data} again=${again} />`}</section>`;
}

function Form({ stream, found, again }) {
  const { kept_ms: ms, bytes_max: most, default_ms: usual } = found;
  const [days, setDays, isDays] = useDraft(ms === null ? "" : `${ms / DAY_MS}`);
  const [size, setSize, isSize] = useDraft(most === null ? "" : `${most / GIGABYTE}`);
  const hasDays = isDays && days !== "", hasSize = isSize && size !== ""; /* an emptied field asks for nothing */
  const keep = async () => {
    const wanted = { ...(hasDays && { retention_ms: Math.round(Number(days) * DAY_MS) }), ...(hasSize && { retention_bytes: Math.round(Number(size) * GIGABYTE) }) };
    const isLess = (hasDays && (ms === null || wanted.retention_ms < ms)) || (hasSize && (most === null || wanted.retention_bytes < most));
    if (isLess && !confirm(`Keep less of ${stream}? Kafka removes what is older for good; who has not read it yet is told by a gap.`)) return "";
    await api("PATCH", `/v1/streams/${enc(stream)}`, wanted);
    again();
    return "kept";
  };
  const number = { type: "number", min: "0", step: "any", inputmode: "decimal" };
  return html`<p>Readings stay ${ms === null ? "" : "for "}<b>${keptFor(ms)}</b>${most !== null && html`, at most <b>${value(most / GIGABYTE)} GB</b> of each partition`}; what comes first counts. <span class="quiet">A new stream: ${keptFor(usual)}.</span></p>
    <p class="actions"><label>Days <input class="short" ...${number} value=${days} onInput=${({ target }) => setDays(target.value)} /></label>
      <label>GB of each partition <input class="short" ...${number} value=${size} onInput=${({ target }) => setSize(target.value)} /></label>
      <${Do} act=${keep} disabled=${!hasDays && !hasSize} label=${`Keep ${stream} for so long`}>Keep<//></p>`;
}
