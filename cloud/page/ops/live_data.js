/* What streams and queries had lately and have now, for a screen that is open: one question a second for all of them. */

import { useEffect, useRef, useState } from "../vendor/htm/standalone.module.js";
import { Live, Series } from "../live/model.js";
import { get, getAll } from "./api.js";
import { useLoaded } from "./ui.js";

export const LOOK_MS = 1_000; /* between two questions for what came */
const HIDDEN_FACTOR = 10; /* so much slower while nobody looks */
const LISTED_AGAIN_MS = 10_000; /* between two looks at what streams and queries there are */
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

/** What there is of these names, as models know it. A query that does not run yet has no keys: each of its texts is taken for one. Pure. */
export function listedOf(names, queries, streams) {
  return names.map((name) => {
    const query = queries.find((one) => one.name === name);
    if (query) return { name, kind: "query", units: query.units, keys: query.keys.length ? query.keys : null, made: query.topic };
    const stream = streams.find((one) => one.name === name);
    return { name, kind: "stream", fields: stream?.fields, made: stream?.topic ?? null };
  });
}

/** Models of streams and queries (`Live`), with series of some devices, `owned`: [key, source, field, devices]. They begin anew with what they are about: a query that is registered
    or replaced meanwhile, a stream that comes back. */
export function useModels({ names, owned = [], device, minutes }) {
  const { data: listed, error } = useLoaded(async () => {
    const [queries, streams] = await Promise.all([getAll("/v1/queries"), getAll("/v1/streams")]);
    return listedOf(names, queries.items, streams.items);
  }, `listed ${names}`, LISTED_AGAIN_MS);
  const live = useRef(null);
  const key = JSON.stringify([names, owned, device, minutes, listed?.map(({ made }) => made)]);
  const known = useRef("");
  if (known.current !== key) {
    known.current = key;
    live.current = Object.assign(new Live(), { own: new Map(owned.map(([one]) => [one, new Series()])) });
  }
  live.current.know(listed ?? []);
  const followed = owned.map(([one, source, field, devices]) => [one, source, field, new Set(devices)]);
  const take = (event) => {
    live.current.take(event, event.received_at ?? Date.now());
    for (const [one, source, field, of] of followed) {
      if (source === event.stream && of.has(event.device) && typeof event[field] === "number") live.current.own.get(one).take(event[field], event.t);
    }
  };
  const recent = useRecent({ key, names: listed ? names : [], device, minutes, take });
  return { live: live.current, ...recent, fault: recent.fault || (listed ? "" : error?.message) };
}
