/* Continuous queries: the list, and one of them. */

import { html } from "../vendor/htm/standalone.module.js";
import { age, counted, local, rate, whole } from "../live/format.js";
import { api, enc, get, getAll } from "./api.js";
import { Sql } from "./editor.js";
import { History } from "./history.js";
import { Plan } from "./query_plan.js";
import { Late, Results } from "./query_results.js";
import { Repairs } from "./repairs.js";
import { Ago, At, bytes, Do, Facts, Loaded, Rows, State, useLoaded } from "./ui.js";

export function Queries() {
  const loaded = useLoaded(() => getAll("/v1/queries"), "queries");
  return html`<p><a class="button" href="#/queries/new">New query</a></p>
    <${Loaded} loaded=${loaded} empty="No query is registered.">${({ items, total }) => html`<${Rows} caption="Queries" rows=${items} total=${total} finds=${(row) => `${row.name} ${row.streams.join(" ")}`} sorts columns=${[
      ["name", "query", { view: ({ name }) => html`<a href=${`#/queries/${enc(name)}`}>${name}</a>` }],
      ["state", "state", { view: (row) => html`<${State} state=${row.state} />` }],
      ["readings_per_s", "readings", { number: true, view: (row) => (row.readings_per_s ? rate(row.readings_per_s) : "–") }],
      ["lag", "not computed yet", { number: true }],
      ["late", "late", { number: true }],
      ["state_bytes", "memory", { number: true, view: (row) => bytes(row.state_bytes) }],
      ["watermark", "final to", { view: ({ watermark }) => html`<${At} at=${watermark} />` }],
      ["detail", "detail", { wraps: true, view: ({ detail }) => local(detail) || "–" }],
    ]} />`}<//>`;
}

export function Query({ name }) {
  const loaded = useLoaded(() => get(`/v1/queries/${enc(name)}`), `query ${name}`);
  return html`<nav class="crumbs"><a href="#/queries">Queries</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(query) => html`
      <${Facts} of=${[
        ["state", html`<${State} state=${query.state} />`],
        ...(query.detail ? [["why", local(query.detail)]] : []),
        ["reads", query.streams.join(", ") || query.stream],
        ["readings", query.readings_per_s ? rate(query.readings_per_s) : null],
        ["not computed yet", query.lag === null ? null : `${whole(query.lag)} records`],
        ["windows final to", query.watermark ? html`<${At} at=${query.watermark} /> <small>${age(Date.now() - query.watermark)}</small>` : null],
        ["late readings", whole(query.late)],
        ["open windows hold", query.state_bytes === null ? null : html`<span title="with the other queries of its lane">${query.state_rows === null ? "" : `${counted(query.state_rows, "rows")} · `}${bytes(query.state_bytes)}</span>`],
        ["registered", html`<${Ago} at=${query.registered_at} />`],
      ]} />
      <section class="card"><h2>Text</h2><${Sql} text=${query.text} />
        <p class="actions">
          ${query.paused
            ? html`<${Do} act=${() => api("POST", `/v1/queries/${enc(name)}/resume`)} done="resumed">Resume<//>`
            : html`<${Do} act=${() => api("POST", `/v1/queries/${enc(name)}/pause`)} done="paused">Pause<//>`}
          <a class="button" href=${`#/queries/new?from=${enc(name)}`}>Edit</a>
          <a class="button" href=${`#/alerts?new=1&query=${enc(name)}`}>Alert on this</a>
          <${Do} danger act=${() => api("DELETE", `/v1/queries/${enc(name)}`)} confirm=${`Remove ${name}? Its results can be read for another hour.`} done="removed">Remove<//>
        </p></section>
      <${Results} key=${query.topic} query=${query} />
      ${query.late > 0 && html`<${Late} key=${`late ${query.topic}`} query=${query} />`}
      <${Plan} name=${name} registeredAt=${query.registered_at} />
      <${Repairs} key=${`repairs ${query.topic}`} name=${name} registeredAt=${query.registered_at} />
      <${History} kind="query" name=${name} />`}<//>`;
}
