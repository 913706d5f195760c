/* A link with a key in it (…/#key=…), such as the one in the QR code of `edgewake up --listen`: the key becomes a cookie that no script
   can read, and leaves the address and the history. What is behind the # is sent to nobody. */

import { make } from "./dom.js";

export async function logInByLink() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  history.replaceState(null, "", location.pathname + location.search);
  await fetch("/v1/session", { method: "POST", headers: { Authorization: `Bearer ${key}` } }).catch(() => {});
}

/** Who is logged in here, and where one can: {login, name, has_key}. */
async function me() {
  const answer = await fetch("/login/me").catch(() => null);
  return answer?.ok ? answer.json() : { login: null, name: null, has_key: false };
}

/** End what this browser has; the address to go on to, at the identity provider where one logged in there. */
export async function logOut() {
  const { login, name } = await me();
  await fetch("/v1/session", { method: "DELETE" }).catch(() => {});
  if (!login || !name) return "/";
  const answer = await fetch("/login/out", { method: "POST" }).catch(() => null);
  return answer?.ok ? (await answer.json()).next : "/";
}

let form = null;
let isKnown = false;
const page = () => document.querySelector("main:not(.asks)");

/** The reader is let in: no form, and who it is stands at the top. */
export function isIn() {
  form?.parentElement.remove();
  form = null;
  page().hidden = false;
  if (!isKnown) showMe();
}

async function showMe() {
  isKnown = true;
  const { name, has_key } = await me();
  if (!name && !has_key) return;
  document.querySelector("#leave")?.remove();
  const leave = make("button", "", name ? `Log out ${name}` : "Log out");
  leave.id = "leave";
  leave.type = "button";
  leave.addEventListener("click", async () => location.assign(await logOut()));
  document.querySelector("header").append(leave);
}

/** The reader is not let in (401), or has no right (403): a form in place of an empty page. `why`: as the server says. */
export async function askToLogIn(status, why) {
  isKnown = false;
  if (form) return;
  form = make("section", "login");
  const asks = make("main", "asks");
  asks.append(form);
  page().before(asks);
  page().hidden = true;
  const { login, name, has_key } = await me();
  if (!form) return;
  form.setAttribute("aria-label", "Log in");
  form.append(make("h2", "", status === 403 ? "Nothing here is yours to see" : "Log in"));
  if (status === 403 || name || has_key) form.append(problem(why));
  if (login) form.append(link("Log in as yourself", login), link("Log in as somebody else", login, "login"));
  form.append(keyForm());
}

function problem(text) {
  const shown = make("p", "", text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "");
  shown.setAttribute("role", "alert");
  return shown;
}

function link(text, login, prompt) {
  const query = new URLSearchParams({ next: location.pathname + location.hash });
  if (prompt) query.set("prompt", prompt);
  const shown = make("a", prompt ? "quiet" : "button", text);
  shown.href = `${login}?${query}`;
  return shown;
}

function keyForm() {
  const shown = make("form");
  const label = make("label", "", "Key or token ");
  const input = make("input");
  input.type = "password";
  input.autocomplete = "current-password";
  input.required = true;
  label.append(input);
  const told = problem("");
  shown.append(label, make("button", "", "Use it"), told);
  shown.addEventListener("submit", async (event) => {
    event.preventDefault();
    const answer = await fetch("/v1/session", { method: "POST", headers: { Authorization: `Bearer ${input.value.trim()}` } }).catch(() => null);
    if (answer?.ok) location.reload();
    else told.textContent = answer ? (await answer.json().catch(() => ({}))).detail ?? `The server answers ${answer.status}.` : "The server is away.";
  });
  return shown;
}
