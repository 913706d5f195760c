/* Looks every two seconds which streams and queries there are, and says why it cannot. */

import { askToLogIn, isIn } from "./login.js";

export const LIST_EVERY_MS = 2_000;
/* A question without an answer for so long has none: a machine that slept, or changed its network, may have a connection that says nothing for a quarter of an hour. */
export const ANSWER_MAX_MS = 15_000;
export const STREAMS_MAX = 16; /* of one subscription, as the server allows */

export class StreamList {
  /** `onList(list)` gets GET /v1/streams; `problem` says in words why there is none. */
  constructor(onList) {
    this.onList = onList;
    this.problem = "";
    this.#lookAgain();
  }

  async #lookAgain() {
    this.problem = await this.#ask();
    setTimeout(() => this.#lookAgain(), LIST_EVERY_MS);
  }

  async #ask() {
    try {
      const answer = await fetch("/v1/streams", { signal: AbortSignal.timeout(ANSWER_MAX_MS) });
      if (answer.status === 401 || answer.status === 403) {
        askToLogIn(answer.status, (await answer.json().catch(() => ({}))).detail ?? "");
        return "log in";
      }
      if (!answer.ok) return (await answer.json().catch(() => ({}))).detail ?? `the server answers ${answer.status}`;
      isIn();
      this.onList((await answer.json()).streams);
      return "";
    } catch {
      return "the server is away";
    }
  }
}
