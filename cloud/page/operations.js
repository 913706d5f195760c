/* The link to the operations pages, on pages of an access server that knows where they are. Who may see them is asked there. */

import { byId } from "./dom.js";

const LOCAL = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** Show the link, unless it leads to the machine of a server that is not the reader's own. */
export async function showOperations() {
  const answer = await fetch("/v1/server").catch(() => null);
  const url = answer?.ok ? (await answer.json()).ops_url : null;
  if (!url || (LOCAL.has(new URL(url).hostname) && !LOCAL.has(location.hostname))) return;
  byId("operations").href = url;
  byId("operations").hidden = false;
}
