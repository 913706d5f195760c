/* Numbers, ages and times as people read them. */

import { clock } from "../dom.js";

export { clock };

/** Four significant digits, thousands apart: 21.4, 0.00527, 53.35, 1 234. */
export function value(number) {
  if (typeof number !== "number" || !Number.isFinite(number)) return "–";
  const size = Math.abs(number);
  if (size !== 0 && (size < 0.0001 || size >= 1e9)) return number.toExponential(2);
  const digits = size >= 1000 ? 0 : Math.min(20, Math.max(0, 3 - Math.floor(Math.log10(size || 1))));
  return Number(number.toFixed(digits)).toLocaleString("en", { maximumFractionDigits: digits }).replaceAll(",", "\u2009");
}

/** 1.2/s, 14/s, 1.2 k/s, 3/min. */
export function rate(perSecond) {
  if (perSecond === null) return "";
  if (perSecond >= 1000) return `${(perSecond / 1000).toFixed(1)} k/s`;
  if (perSecond >= 10) return `${Math.round(perSecond)}/s`;
  if (perSecond >= 0.5) return `${perSecond.toFixed(1)}/s`;
  return `${Math.round(perSecond * 60)}/min`;
}

/** now, 4 s ago, 3 min ago, 2 h 5 min ago, 12 days ago. */
export function age(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 2) return "now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min ago`;
  return `${Math.floor(s / 86_400)} days ago`;
}

/** Local date and time with its zone, for titles. */
export const moment = (ms) =>
  new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "long" });

/** Local time of day to the millisecond, where there are any. */
export const instant = (ms) => (ms % 1000 ? `${clock(ms)}.${String(ms % 1000).padStart(3, "0")}` : clock(ms));

const MOMENTS = /\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/g; /* as servers write times for people */

/** A server's text with its times as local ones. */
export const local = (text) => text.replace(MOMENTS, (said) => clock(Date.parse(said.replace(" UTC", "Z").replace(" ", "T"))));

const UNITS = { Cel: "°C", "[degF]": "°F", deg: "°", MiBy: "MiB", KiBy: "KiB", GiBy: "GiB", By: "B" };

/** A unit's UCUM symbol as people write it. */
export const unitSaid = (symbol) => UNITS[symbol] ?? symbol;

const SIZES = [["B", "KB", "MB", "GB", "TB"], ["B/s", "KB/s", "MB/s", "GB/s"], ["KiB", "MiB", "GiB", "TiB"]]; /* each 1,024 of the one before */

/** The unit that suits the size of a number: {unit, by}, where `by` is what the number is divided by. */
export function sizedUnit(number, unit) {
  const units = SIZES.find((some) => some.includes(unit)) ?? [unit];
  let [place, by] = [units.indexOf(unit), 1];
  while (Math.abs(number) / by >= 1024 && place + 1 < units.length) [place, by] = [place + 1, by * 1024];
  return { unit: units[place], by };
}

/** A number beside an axis, with as many digits as tell it from the next one, which is a `step` away: 20 M, 150 k, 74.085. */
export function short(number, step) {
  if (number !== 0 && step >= 1e6) return `${value(number / 1e6)}\u2009M`;
  if (number !== 0 && step >= 1e4) return `${value(number / 1e3)}\u2009k`;
  if (step < 1e-6) return value(number); /* no decimal writes it */
  const digits = String(step).split(".")[1]?.length ?? 0;
  return number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replaceAll(",", "\u2009");
}

/** A whole number with its thousands apart: 7 368. */
export const whole = (number) => number.toLocaleString("en", { maximumFractionDigits: 0 }).replaceAll(",", "\u2009");

/** `1 client`, `2 clients`. `many`: as it is called where there are several. */
export const counted = (number, many) => `${whole(number)} ${number === 1 ? many.replace(/ies$/, "y").replace(/s$/, "") : many}`;

const isCounted = (one) => one !== null && typeof one === "object" && "item" in one && "count" in one;
const DEGREES = new Set(["lat", "lon"]); /* four digits of a place are a kilometre */

const LONG_NUMBER = 1e9; /* from then on a short number is a power of ten, which says nothing of an epoch or an offset */

function numberCell(number, name) {
  if (DEGREES.has(name)) return number.toFixed(5);
  return Number.isSafeInteger(number) && Math.abs(number) >= LONG_NUMBER ? whole(number) : value(number);
}

/** A cell of a table: numbers short (whole ones in full), lists as words, other objects as JSON, nothing as a dash. `name`: of its column. */
export function cell(content, name) {
  if (content === null || content === undefined) return "–";
  if (typeof content === "number") return numberCell(content, name);
  if (Array.isArray(content)) return content.map((one) => (isCounted(one) ? `${one.item} ${whole(one.count)}` : cell(one))).join(", ") || "–";
  if (typeof content === "object") return JSON.stringify(content);
  return String(content);
}

/** `room_temperature` → `room temperature`. */
export const words = (name) => name.replaceAll("_", " ");

const ENDINGS = { "%": ["percent", "pct"], "°": ["deg", "degrees"], "°C": ["celsius"], "B/s": ["bytes s", "bytes per s"], B: ["bytes"] }; /* units that names spell in their own way */

/** What a field is called beside its unit, which the end of its name often says once more: `speed_kmh` in km/h is `speed`. One letter may be something else: `phase_a` in A stays. */
export function called(name, unit = "") {
  const text = words(name);
  const endings = unit ? [...(ENDINGS[unit] ?? []), unit.toLowerCase().replaceAll(/[^a-z0-9]/g, "")] : [];
  const ending = endings.find((one) => one.length > 1 && text.toLowerCase().endsWith(` ${one}`));
  return ending ? text.slice(0, -ending.length - 1) : text;
}
