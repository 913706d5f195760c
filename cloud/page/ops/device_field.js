/* A field for the name of a device, or of some: those that there are stand in a list, which is searched while somebody types. */

import { html, useEffect, useState } from "../vendor/htm/standalone.module.js";
import { get } from "./api.js";

const SHOWN = 20; /* of the list; more are found by more letters */
const PAUSE_MS = 150; /* after the last key */

/** `stream`: of those that send it alone; `isSeveral`: names with commas between, of which the last is sought. `id`: of the list, one on a page. */
export function DeviceField({ id, value, onInput, stream, isSeveral, ...more }) {
  const [names, setNames] = useState([]);
  const end = isSeveral ? value.lastIndexOf(",") + 1 : 0;
  const typed = value.slice(end).trim();
  useEffect(() => {
    let over = false;
    const timer = setTimeout(async () => {
      const query = new URLSearchParams({ limit: SHOWN, ...(typed && { q: typed }), ...(stream && { stream }) });
      const found = await get(`/v1/devices?${query}`).catch(() => ({ items: [] })); /* a name may be typed all the same */
      if (!over) setNames(found.items.map(({ device }) => device));
    }, PAUSE_MS);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [typed, stream]);
  const before = value.slice(0, end) && `${value.slice(0, end)} `;
  return html`<input list=${id} maxlength="400" spellcheck=${false} autocomplete="off" value=${value} onInput=${onInput} ...${more} />
    <datalist id=${id}>${names.map((one) => html`<option key=${one} value=${`${before}${one}`} />`)}</datalist>`;
}
