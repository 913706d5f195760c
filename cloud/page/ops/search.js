/* The search in the top line: devices, streams, queries, boards and rules by any part of their names. `/` goes to it. */

import { html, useEffect, useRef, useState } from "../vendor/htm/standalone.module.js";
import { enc, get } from "./api.js";

const PAUSE_MS = 150; /* after the last key */
const PAGES = { device: "devices", stream: "streams", query: "queries", board: "boards", alert: "alerts" };

export function Search() {
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const field = useRef(null);
  const list = useRef(null);
  useEffect(() => {
    const onKey = (event) => {
      if (event.key !== "/" || event.target.matches("input, textarea, select")) return;
      event.preventDefault();
      field.current.focus();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => {
    setFound(null);
    if (!text) return undefined;
    let over = false;
    const timer = setTimeout(async () => {
      const next = await get(`/v1/search?q=${enc(text)}`).catch((error) => ({ fault: error.message, items: [] }));
      if (!over) setFound(next);
    }, PAUSE_MS);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [text]);
  const leave = () => {
    setText("");
    field.current.value = "";
  };
  const links = () => [...(list.current?.querySelectorAll("a") ?? [])];
  const onKey = (event) => {
    const all = links();
    const at = all.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      leave();
      field.current.focus();
    } else if (step) {
      event.preventDefault();
      (all[at + step] ?? field.current).focus();
    }
  };
  const onSubmit = (event) => {
    event.preventDefault();
    links()[0]?.click();
  };
  return html`<form role="search" aria-label="Everywhere" onKeyDown=${onKey} onSubmit=${onSubmit} onFocusOut=${({ relatedTarget, currentTarget }) => { if (!currentTarget.contains(relatedTarget)) leave(); }}>
    <label class="search"><span class="spoken">Search devices, streams, queries, boards and alerts</span>
      <input ref=${field} type="search" placeholder="Search ( / )" maxlength="64" autocomplete="off" spellcheck=${false} onInput=${({ target }) => setText(target.value.trim())} /></label>
    <div class="search" role="status">${found && html`<ul ref=${list}>${found.items.map(({ kind, name, title }) => html`<li key=${`${kind} ${name}`}><a href=${`#/${PAGES[kind]}/${enc(name)}`} onClick=${leave}>${title || name} <small>${kind}</small></a></li>`)}
      ${found.items.length === 0 && html`<li class="quiet">${found.fault ?? `Nothing is called “${text}”.`}</li>`}</ul>`}</div></form>`;
}
