/* The way of one frame: from the device to the queries that read it, by the token of its acknowledgement. */

import { html, useState } from "../vendor/htm/standalone.module.js";
import { moment } from "../live/format.js";
import { enc, get } from "./api.js";
import { Ago, Facts, Loaded, useLoaded } from "./ui.js";

const SAID = {
  sequenced: "on its stream, for everybody to read",
  kept: "in Kafka; the sequencer has not come to it yet",
  held: "waits for an earlier frame of its device",
  repeat: "an earlier copy is on the stream; this one went no further",
  gone: "was on the stream, which no longer keeps records of that time",
  searching: "is being looked for",
  dead: "was refused, and is kept as a dead letter",
};
const QUERY_SAID = { computed: "computed", pending: "not computed yet", not_asked: "the query came later" };

export function Trace({ params }) {
  const asked = params.get("token") ?? "";
  const [token, setToken] = useState(asked);
  const go = (event) => {
    event.preventDefault();
    location.hash = `#/trace?token=${enc(token.trim())}`;
  };
  const [fault, setFault] = useState("");
  const find = async (event) => {
    event.preventDefault();
    const said = new URLSearchParams([...new FormData(event.target)].filter(([, text]) => text.trim()).map(([name, text]) => [name, text.trim()]));
    setFault("");
    try {
      const found = await get(`/v1/acks?${said}`);
      setToken(found.token);
      location.hash = `#/trace?token=${enc(found.token)}`;
    } catch (error) {
      setFault(error.message);
    }
  };
  return html`<form class="card" onSubmit=${go}><p class="actions bare"><label>Token of an acknowledgement <input required size="24" spellcheck=${false} placeholder="12.34567" value=${token} onInput=${({ target }) => setToken(target.value)} /></label>
      <button class="primary">Follow it</button></p>
      <p class="quiet">Each acknowledgement from end to end has one: <code>edgewake send</code> prints it, agents show their last ones with <code>edgewake-agent status</code>.</p></form>
    <form class="card" aria-label="By device and number" onSubmit=${find}><p class="actions bare"><label>Or device <input name="device" required size="14" spellcheck=${false} placeholder="car-07" /></label>
      <label>stream <input name="stream" required size="16" spellcheck=${false} placeholder="vehicle_position" /></label>
      <label>number <input name="seq" required size="8" inputmode="numeric" pattern="[0-9]+" placeholder="812" /></label>
      <label>epoch <input name="epoch" size="12" inputmode="numeric" pattern="[0-9]*" placeholder="the newest" /></label><button>Find it</button></p>
      <p class="fault" role="alert">${fault}</p></form>
    ${asked && html`<${Way} token=${asked} />`}`;
}

function Way({ token }) {
  const loaded = useLoaded(() => get(`/v1/acks/${enc(token)}`), `ack ${token}`);
  return html`<${Loaded} loaded=${loaded}>${(found) => html`
    <ol class="card way" aria-label="Its way">
      <li data-state="well"><b>${found.device}</b> <span>sent it on <a href=${`#/streams/${enc(found.stream)}`}>${found.stream}</a>${found.frame !== null ? `, frame ${found.frame} of epoch ${found.epoch}` : ""}</span></li>
      <li data-state="well"><b>bridge</b> <span>kept it <time title=${moment(found.received_at)}><${Ago} at=${found.received_at} /></time></span></li>
      <li data-state=${found.state === "sequenced" ? "well" : found.state === "dead" ? "bad" : "late"}><b>sequencer</b> <span>${SAID[found.state]}${found.detail && `: ${found.detail}`}
        ${found.state === "dead" && found.offset !== null && html` <a href=${`#/letters/${found.offset}`}>the letter</a>`}</span></li>
      ${found.queries.map((one) => html`<li data-state=${one.state === "computed" ? "well" : "late"}><b><a href=${`#/queries/${enc(one.query)}`}>${one.query}</a></b> <span>${QUERY_SAID[one.state]}${one.offsets_behind ? `, ${one.offsets_behind} to go` : ""}</span></li>`)}
    </ol>
    <${Facts} of=${[
      ["where it is", found.partition === null ? null : `partition ${found.partition}, offset ${found.offset}`],
      ["came to Kafka", moment(found.received_at)],
      ["token", found.token],
    ]} />`}<//>`;
}
