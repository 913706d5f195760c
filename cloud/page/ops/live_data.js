/* What streams and queries had lately and have now, for a screen that is open: one question a second for all of them. */

import { useEffect, useRef, useState } from "../vendor/htm/standalone.module.js";
import { Live, Series } from "../live/model.js";
import { get, getAll } from "./api.js";

export const LOOK_MS = 1_000; /* between two questions for what came */
const HIDDEN_FACTOR = 10; /* so much slower while nobody looks */
const SOURCES_MAX = 16; /* of one question, as the server allows */

/** Names in parts of one question each: {names, place: where its last answer ended}. */
const partsOf = (names) => Array.from({ length: Math.ceil(names.length / SOURCES_MAX) }, (_, i) => ({ names: names.slice(i * SOURCES_MAX, (i + 1) * SOURCES_MAX), place: null }));

/** Ask from now on. `key` changes: begin anew. `begin`: awaited before the first question; `take(event)` gets each, oldest first.
    `where`, `select`: as at the access servers. What the server refuses is not asked again before `key` changes.
    {now, fault, isRefused, isCut}: when it was answered last, what is wrong, whether with the question, and whether older events were left out. */
export function useRecent({ key, names, device, where, select, minutes = 15, isPaused = false, begin, take }) {
  const [state, setState] = useState({ now: Date.now(), fault: "", isRefused: false, isCut: false });
  const paused = useRef(isPaused);
  paused.current = isPaused;
  const calls = useRef({});
  calls.current = { begin, take };
  useEffect(() => {
    let timer, over = false, isCut = false;
    const parts = partsOf(names);
    const askFor = async (part) => {
      const query = new URLSearchParams([...part.names.map((one) => ["source", one]), ["minutes", minutes], ...Object.entries({ device, where, select }).filter(([, said]) => said), ...(part.place ? [["after", part.place]] : [])]);
      const found = await get(`/v1/recent?${query}`);
      if (over) return;
      isCut ||= found.is_cut;
      part.place = found.place;
      found.events.forEach((event) => calls.current.take(event));
    };
    const ask = async () => {
      if (parts.every(({ place }) => place === null)) await calls.current.begin?.();
      for (const part of parts) if (!over) await askFor(part);
    };
    const look = async () => {
      let fault = "", isRefused = false;
      try {
        if (names.length && !paused.current) await ask();
      } catch (error) {
        fault = error.message;
        isRefused = error.status === 422;
      }
      if (over) return;
      setState({ now: Date.now(), fault, isRefused, isCut });
      if (isRefused) return;
      timer = setTimeout(look, document.hidden ? HIDDEN_FACTOR * LOOK_MS : LOOK_MS);
    };
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [key]);
  return state;
}

/** Models of streams and queries (`Live`), with series of some devices, `owned`: [key, source, field, devices]. */
export function useModels({ names, owned = [], device, minutes }) {
  const live = useRef(null);
  const key = JSON.stringify([names, owned, device, minutes]);
  const known = useRef("");
  if (known.current !== key) {
    known.current = key;
    live.current = Object.assign(new Live(), { own: new Map(owned.map(([one]) => [one, new Series()])) });
  }
  const followed = owned.map(([one, source, field, devices]) => [one, source, field, new Set(devices)]);
  const begin = async () => {
    const [found, streams] = await Promise.all([getAll("/v1/queries"), getAll("/v1/streams")]);
    const queries = new Map(found.items.map((one) => [one.name, one]));
    const fields = new Map(streams.items.map((one) => [one.name, one.fields]));
    /* A query that does not run yet has no keys: each of its texts is taken for one. */
    live.current.know(names.map((name) => ({ name, kind: queries.has(name) ? "query" : "stream", fields: fields.get(name), units: queries.get(name)?.units, keys: queries.get(name)?.keys.length ? queries.get(name).keys : null })));
  };
  const take = (event) => {
    live.current.take(event, event.received_at ?? Date.now());
    for (const [one, source, field, of] of followed) {
      if (source === event.stream && of.has(event.device) && typeof event[field] === "number") live.current.own.get(one).take(event[field], event.t);
    }
  };
  return { live: live.current, ...useRecent({ key, names, device, minutes, begin, take }) };
}

