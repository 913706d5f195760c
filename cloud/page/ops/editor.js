/* A place to write SQL: CodeJar edits, Prism colours, and what the server refuses is underlined at its line and column. */

import { CodeJar } from "../vendor/codejar/codejar.js";
import { html, useEffect, useRef } from "../vendor/htm/standalone.module.js";

const WORD = /[\w.]+|\S/y; /* what is underlined from its first character on */
const COLOUR_MS = 60; /* after the last change */
const REFUSED = "refused"; /* name of the highlight, as the style sheet has it */

/** Faults of a refusal, each {detail, line, column}; one without a place where the server says none. */
export function faultsOf(error) {
  const said = error.problem?.faults ?? error.problem?.errors;
  return said?.length ? said.map((one) => ({ ...one, detail: one.detail ?? one.what })) : [{ detail: error.message }];
}

/** [start, end] of what a fault is about in a text, in characters; null without a place. Lines and columns count from 1. */
export function spanOf(text, { line, column }) {
  if (!line) return null;
  const lines = text.split("\n");
  if (line > lines.length) return null;
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const content = lines[line - 1];
  if (!column) return [start, start + content.length];
  WORD.lastIndex = Math.min(column - 1, Math.max(0, content.length - 1));
  const found = WORD.exec(content);
  return [start + WORD.lastIndex - (found?.[0].length ?? 0), start + (found ? WORD.lastIndex : content.length)];
}

/** A stretch of an element's text, whatever elements it lies in. */
function rangeOf(element, [start, end]) {
  const range = new Range();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let at = 0, isOpen = false;
  while (walker.nextNode()) {
    const { length } = walker.currentNode;
    if (!isOpen && start < at + length) {
      range.setStart(walker.currentNode, start - at);
      isOpen = true;
    }
    if (isOpen && end <= at + length) {
      range.setEnd(walker.currentNode, end - at);
      return range;
    }
    at += length;
  }
  return null;
}

/** Underline what these faults are about; a browser without highlights has the list of faults, which says the place as well. */
function underline(element, faults) {
  if (!globalThis.CSS?.highlights) return;
  const spans = faults.map((one) => spanOf(element.textContent, one)).filter(Boolean);
  CSS.highlights.set(REFUSED, new Highlight(...spans.map((one) => rangeOf(element, one)).filter(Boolean)));
}

/** What is written. Lines that came without a key, dropped or put in by a tool, are elements in a browser's eyes. */
const textOf = (element) => (element.querySelector("br, div") ? element.innerText : element.textContent);

const colour = (element) => void (element.innerHTML = Prism.highlight(textOf(element), Prism.languages.sql, "sql"));

/** A query to look at. */
export const Sql = ({ text }) => html`<pre tabindex="0"><code dangerouslySetInnerHTML=${{ __html: Prism.highlight(text, Prism.languages.sql, "sql") }}></code></pre>`;

/** `first`: the text that it begins with; `onText(text)`: at each change; `onSend`: Ctrl + Enter; `faults`: what was refused of the text as it is. */
export function SqlEditor({ id, label, first, onText, onSend, faults }) {
  const element = useRef(null);
  const jar = useRef(null);
  const calls = useRef({});
  calls.current = { onText, onSend, faults };
  useEffect(() => {
    const area = element.current;
    const paint = () => {
      colour(area);
      underline(area, calls.current.faults);
    };
    area.addEventListener("keyup", (event) => event.key === "Tab" && event.stopImmediatePropagation()); /* for the jar a change: it would take the focus back from who tabs on */
    jar.current = CodeJar(area, paint, { catchTab: false, addClosing: false, tab: "  " });
    area.style.outline = "";
    jar.current.updateCode(first);
    let known = first;
    const heard = () => {
      const text = textOf(area);
      if (text !== known) calls.current.onText((known = text));
    };
    let timer;
    const typed = (event) => {
      heard();
      clearTimeout(timer);
      if (!event.isComposing) timer = setTimeout(colourAgain, COLOUR_MS); /* what came without a key: dropped, spoken, put in by a tool */
    };
    const colourAgain = () => {
      const place = document.activeElement === area ? jar.current.save() : null;
      paint();
      if (place) jar.current.restore(place);
    };
    jar.current.onUpdate(heard);
    area.addEventListener("input", typed);
    return () => {
      clearTimeout(timer);
      jar.current.destroy();
    };
  }, []);
  useEffect(() => {
    underline(element.current, faults);
    return () => void globalThis.CSS?.highlights?.delete(REFUSED);
  }, [faults]);
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    calls.current.onSend();
  };
  const go = (fault) => () => {
    const [start, end] = spanOf(element.current.textContent, fault);
    element.current.focus();
    jar.current.restore({ start, end, dir: "->" });
  };
  return html`<p class="label" id=${`${id}-label`}>${label}</p>
    <div id=${id} class="sql" role="textbox" aria-multiline="true" aria-labelledby=${`${id}-label`} aria-invalid=${faults.length ? "true" : null} aria-describedby=${`${id}-faults`}
      ref=${element} tabindex="0" autocapitalize="off" onKeyDown=${onKeyDown}></div>
    <div id=${`${id}-faults`} role="status">${faults.map((one) => html`<p class="fault">${one.line
      ? html`<button type="button" class="place" onClick=${go(one)}>line ${one.line}${one.column ? `, column ${one.column}` : ""}</button> ` : ""}${one.detail}</p>`)}</div>`;
}
