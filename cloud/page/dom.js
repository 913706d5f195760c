/* The few things that all panels do to the document. Text from a stream goes in as text, never as HTML. */

export const byId = (id) => document.getElementById(id);

/** Make an element with a class and a text. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== "") element.textContent = text;
  return element;
}

/** Set a text, touching the document only when it changes. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A number for people: `digits` after the point, a dash for what is missing. */
export function number(value, digits = 0) {
  return typeof value === "number" && Number.isFinite(value) ? value.toFixed(digits) : "–";
}

/** A duration in two units: 42 s, 3 min 5 s, 2 h 4 min. */
export function duration(seconds) {
  if (typeof seconds !== "number") return "–";
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** Local time of day, hh:mm:ss, of ms since 1970; with its day where that is not today, and its year where that is another one. */
export function clock(ms) {
  const [at, now] = [new Date(ms), new Date()];
  const time = at.toLocaleTimeString([], { hour12: false });
  if (at.toDateString() === now.toDateString()) return time;
  const year = at.getFullYear() === now.getFullYear() ? {} : { year: "numeric" };
  return `${at.toLocaleDateString([], { day: "numeric", month: "short", ...year })}, ${time}`;
}

/** A colour of the theme, for what is drawn on a canvas. */
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Call `redraw` when light and dark change, by the button or by the system. */
export function onThemeChange(redraw) {
  document.addEventListener("themechange", redraw);
}

/* Some browsers forbid storage to some pages; then the choice lasts as long as the page. */
function storage(action) {
  try {
    return action(localStorage);
  } catch {
    return null;
  }
}

/** Wire the button. The choice is kept where the browser allows it. */
export function setUpTheme(button) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const use = (theme) => {
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new Event("themechange"));
  };
  const ofSystem = () => (system.matches ? "dark" : "light");
  let chosen = storage((kept) => kept.getItem("theme"));
  use(chosen ?? ofSystem());
  button?.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    storage((kept) => kept.setItem("theme", chosen));
    use(chosen);
  });
  system.addEventListener("change", () => chosen ?? use(ofSystem()));
}

const SCROLLS = ".scroll, .board-text, .states, pre";
const MORE_LOOK_MS = 500;

/** Say on all that scrolls where there is more of it (`data-more`: above, below, left, right): the style sheets show it there. */
export function tellMore(root) {
  const look = () => {
    for (const one of root.querySelectorAll(SCROLLS)) {
      const more = [
        one.scrollTop > 1 && "above", one.scrollTop + one.clientHeight < one.scrollHeight - 1 && "below",
        one.scrollLeft > 1 && "left", one.scrollLeft + one.clientWidth < one.scrollWidth - 1 && "right",
      ].filter(Boolean).join(" ");
      if ((one.dataset.more ?? "") !== more) one.dataset.more = more;
    }
  };
  root.addEventListener("scroll", look, { capture: true, passive: true });
  setInterval(look, MORE_LOOK_MS);
}

/** A part of an address as its text; one that was cut in the middle of a character stays as it is, and names nothing. */
export function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What has the focus keeps it when its place in the document changes, or when a button was disabled for a while: the browser takes it from both,
    from a button with the next frame, though it may be enabled again by then. */
export function keepFocus(root) {
  let last = null, isDue = false;
  document.addEventListener("focusin", ({ target }) => (last = target));
  document.addEventListener("pointerdown", () => (last = null)); /* a press beside everything takes the focus away for good */
  const restore = () => document.activeElement === document.body && last?.isConnected && last.focus({ preventScroll: true });
  const restoreLater = () => {
    isDue = false;
    restore();
  };
  new MutationObserver(() => {
    restore();
    if (!isDue) requestAnimationFrame(() => setTimeout(restoreLater));
    isDue = true;
  }).observe(root, { childList: true, subtree: true, attributeFilter: ["disabled"] });
}
