/* Boards: the list, and one of them: looked at, put together by mouse or keyboard, saved with a version. */

import { html, useEffect, useRef, useState } from "../vendor/htm/standalone.module.js";
import { api, enc, get, getAll } from "./api.js";
import { DeviceField } from "./device_field.js";
import { BoardCard, devicesOf, hasOwn, ownKey } from "../board/card.js";
import { added, change, COLUMNS, draft, KINDS, kindsFor, linesOf, settled, suited, titleOf, undone } from "../board/model.js";
import { words } from "../live/format.js";
import { useModels } from "./live_data.js";
import { usePast } from "./past.js";
import { spanOf } from "./range.js";
import { Ago, Choice, Do, kept, Loaded, Rows, useLoaded } from "./ui.js";

const MEMBERS_AGAIN_MS = 15_000;
const LIVE = new URLSearchParams();
const ONCE_MS = 3_600_000; /* what came before the page was opened does not change; the models have what came since */
const ROW_PX = 80; /* height of a row of the grid, with its gap */

/** The address of a board that is edited; `card`: what its form begins with. */
const editing = (name, card = {}) => `#/boards/${enc(name)}?${new URLSearchParams({ edit: 1, ...card })}`;

/** The list. With a `source`, and perhaps its `field` and `device`, a press on a board begins a card of them there. */
export function Boards({ params }) {
  const loaded = useLoaded(() => getAll("/v1/boards"), "boards");
  const [name, setName] = useState("");
  const card = kept(params, ["source", "field", "device"]);
  const hasCard = Boolean(card.source);
  return html`${hasCard && html`<p class="lead">Where does ${[card.field && words(card.field), card.source, card.device].filter(Boolean).join(", ")} go? Choose a board below, or make a new one.</p>`}
    <form class="actions" onSubmit=${(event) => { event.preventDefault(); location.hash = editing(name, card); }}>
      <label>New board <input required pattern="[a-z][a-z0-9_]*" title="a-z, 0-9 and _" placeholder="kitchen" value=${name} onInput=${({ target }) => setName(target.value)} /></label>
      <button class="primary">Make</button></form>
    <${Loaded} loaded=${loaded} empty=${html`No board yet. Name one above and put cards on it, or keep boards in files: <code>edgewake board apply FILE</code>`}>${({ items, total }) => html`<${Rows} caption="Boards" rows=${items} total=${total} finds=${(row) => `${row.title} ${row.name}`} sorts columns=${[
      ["name", "board", { view: (row) => html`<a href=${hasCard ? editing(row.name, card) : `#/boards/${enc(row.name)}`}>${row.title || row.name}</a>` }],
      ["cards", "cards", { number: true }],
      ["changed_at", "changed", { view: ({ changed_at, changed_by }) => html`<${Ago} at=${changed_at} /> by ${changed_by}` }],
    ]} />`}<//>`;
}

export function Board({ name, params }) {
  const isEdited = Boolean(params.get("edit"));
  const loaded = useLoaded(() => get(`/v1/boards/${enc(name)}`).catch((error) => {
    if (error.status === 404 && isEdited) return { name, version: 0, title: "", cards: [] };
    throw error;
  }), `board ${name}`);
  return html`<nav class="crumbs"><a href="#/boards">Boards</a> › ${name}</nav>
    <${Loaded} loaded=${loaded}>${(board) => isEdited ? html`<${Editor} key=${name} kept=${board} begin=${kept(params, ["source", "field", "device"])} />` : html`<${Shown} board=${board} params=${params} />`}<//>`;
}

function Shown({ board, params }) {
  const place = useRef(null);
  return html`<p class="actions board-head"><b class="lead">${board.title || board.name}</b>
      <a class="button" href=${`#/boards/${enc(board.name)}?edit=1`}>Edit</a>
      <button type="button" onClick=${() => place.current.requestFullscreen()}>Full screen</button>
      <${Do} act=${() => navigator.clipboard.writeText(location.href)} done="copied, for who operates">Copy link<//>
      ${board.read_at?.length > 0 && html`<${Do} act=${() => navigator.clipboard.writeText(board.read_at[0])} done="copied: who opens it sees what their own grants show">Copy link for readers<//>`}</p>
    <div class="board-ground" ref=${place}>${board.cards.length === 0 ? html`<p class="card quiet">No card yet. Edit it and add the first.</p>` : html`<${Grid} cards=${board.cards} params=${params} />`}</div>`;
}

/** The cards with the devices of their groups. */
function useMembers(cards) {
  const groups = [...new Set(cards.map(({ group }) => group).filter(Boolean))].sort();
  const { data } = useLoaded(async () => new Map(await Promise.all(groups.map(async (group) => [group, (await get(`/v1/groups/${enc(group)}`)).devices]))), `members ${groups}`, MEMBERS_AGAIN_MS);
  return cards.map((card) => (card.group ? { ...card, members: data?.get(card.group) ?? [] } : card));
}

/** What the cards show: asked for together, as long as they are on the screen. */
function useLive(cards) {
  const names = [...new Set(cards.map(({ source }) => source).filter(Boolean))].sort();
  const owned = [...new Map(cards.flatMap(linesOf).filter(hasOwn).map((card) => [ownKey(card), [ownKey(card), card.source, card.field, devicesOf(card)]])).values()];
  return useModels({ names, owned });
}

/** What charts show that the models do not have, of each line of a card: `past`, another time than the last minutes, undefined while it is live; and `before`,
    of the last minutes what there was too much of to be read (`isCut`), with what was wrong where it is not known. */
function useCharts(cards, live, params, isCut) {
  const charts = [...new Map(cards.flatMap(linesOf).map((card) => [ownKey(card), card])).values()];
  const wanted = charts.map((card) => ({ key: ownKey(card), source: card.source, fields: [card.field], devices: devicesOf(card), isQuery: live.queries.has(card.source) }));
  const isKnown = wanted.every(({ source }) => live.queries.has(source) || live.streams.has(source));
  const { isLive } = spanOf(params);
  const spanAt = (at) => ({ ...spanOf(params, at), isLive: isLive && !isCut });
  const { data, error } = usePast(isKnown ? wanted : [], spanAt, `board ${params} ${isCut}`, isLive ? ONCE_MS : undefined);
  const stepsOf = (card) => data?.found.get(ownKey(card))?.get(card.field) ?? [];
  const pastOf = (card) => {
    if (isLive) return undefined;
    if (error) return { fault: error.message };
    if (!data || !isKnown) return null;
    if (data.faults.has(ownKey(card))) return { fault: data.faults.get(ownKey(card)).message };
    return { steps: stepsOf(card), span: [data.span.from, data.span.to] };
  };
  return (card) => linesOf(card).map((line) => ({ past: pastOf(line), before: isLive ? stepsOf(line) : [] }));
}

function Grid({ cards: kept, edit, params = LIVE }) {
  const cards = useMembers(kept);
  const { live, now, fault, isCut } = useLive(cards);
  const chartOf = useCharts(cards, live, params, isCut);
  return html`${fault && html`<p class="card wrong" role="alert">${fault}; what you see is of before.</p>`}
    <div class="grid">${cards.map((card, i) => html`<${Placed} key=${card.id ?? i} card=${kept[i]} index=${i} edit=${edit}><${BoardCard} card=${card} live=${live} now=${now} charts=${chartOf(card)} /><//>`)}</div>`;
}

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function Placed({ card, index, edit, children }) {
  const style = { gridColumn: `${card.x + 1} / span ${card.w}`, gridRow: `${card.y + 1} / span ${card.h}` };
  const label = titleOf(card) || "Text";
  if (!edit) return html`<section role="group" class="card" style=${style} aria-label=${label}>${children}</section>`;
  const onKey = (event) => {
    const move = MOVES[event.key];
    if (event.target !== event.currentTarget) return;
    if (event.key === "Delete") return edit.remove(index);
    if (!move) return;
    event.preventDefault();
    const [dx, dy] = move;
    edit.move(index, event.shiftKey ? { ...card, w: card.w + dx, h: card.h + dy } : { ...card, x: card.x + dx, y: card.y + dy });
  };
  const drag = (event, isSize) => {
    if (event.button !== 0 || event.target.closest("button, input, select, a") && !isSize) return;
    event.preventDefault();
    const column = event.currentTarget.closest(".grid").clientWidth / COLUMNS;
    const [fromX, fromY] = [event.clientX, event.clientY];
    const target = event.currentTarget;
    target.setPointerCapture(event.pointerId);
    const at = ({ clientX, clientY }) => [Math.round((clientX - fromX) / column), Math.round((clientY - fromY) / ROW_PX)];
    target.addEventListener("pointerup", (end) => {
      const [dx, dy] = at(end);
      if (dx || dy) edit.move(index, isSize ? { ...card, w: card.w + dx, h: card.h + dy } : { ...card, x: card.x + dx, y: card.y + dy });
    }, { once: true });
  };
  return html`<section role="group" class="card editable" style=${style} tabindex="0" aria-label=${`${label}: arrows move it, with Shift they size it, Delete removes it`} onKeyDown=${onKey}>
    <div class="handle" onPointerDown=${(event) => drag(event, false)}>⠿ <small>${label}</small>
      <button type="button" aria-label=${`Change ${label}`} onClick=${() => edit.choose(index)}>✎</button>
      <button type="button" aria-label=${`Remove ${label}`} onClick=${() => edit.remove(index)}>×</button></div>
    ${children}<div class="sizer" aria-hidden="true" onPointerDown=${(event) => drag(event, true)}></div></section>`;
}

function Editor({ kept, begin }) {
  const [state, setState] = useState(() => draft({ title: kept.title, cards: kept.cards }));
  const [version, setVersion] = useState(kept.version);
  const [chosen, setChosen] = useState(null);
  const [fault, setFault] = useState(null);
  const { now } = state;
  const set = (part) => setState((before) => change(before, { ...before.now, ...part }));
  const edit = {
    move: (i, card) => set({ cards: settled(now.cards.map((one, j) => (i === j ? card : one)), i) }),
    remove: (i) => { setChosen(null); set({ cards: now.cards.filter((_, j) => i !== j) }); },
    choose: setChosen,
  };
  const undo = () => setState(undone);
  useEffect(() => {
    const onKey = (event) => {
      if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.target.matches("input, textarea, select")) return;
      event.preventDefault();
      undo();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const save = async (over) => {
    try {
      await api("PUT", `/v1/boards/${enc(kept.name)}?version=${over ?? version}`, now);
      location.hash = `#/boards/${enc(kept.name)}`;
    } catch (error) {
      setFault(error);
    }
  };
  const theirs = async (isTaken) => {
    const found = await get(`/v1/boards/${enc(kept.name)}`);
    if (!isTaken) return save(found.version);
    setState((before) => change(before, { title: found.title, cards: found.cards }));
    setVersion(found.version);
    return setFault(null);
  };
  const put = (card) => {
    set({ cards: chosen === null ? added(now.cards, { ...card, ...suited(card.kind) }) : settled(now.cards.map((one, i) => (i === chosen ? { ...one, ...card } : one)), chosen) });
    setChosen(null);
  };
  return html`<p class="actions board-head"><label>Title <input value=${now.title} maxlength="100" placeholder=${kept.name} onInput=${({ target }) => set({ title: target.value })} /></label>
      <button type="button" class="primary" onClick=${() => save()}>Save</button>
      <button type="button" disabled=${state.past.length === 0} onClick=${undo}>Undo</button>
      <a class="button" href=${kept.version ? `#/boards/${enc(kept.name)}` : "#/boards"}>Leave</a>
      ${kept.version > 0 && html`<${Do} danger act=${async () => { await api("DELETE", `/v1/boards/${enc(kept.name)}`); location.hash = "#/boards"; }} confirm=${`Remove the board ${kept.name}?`}>Remove board<//>`}</p>
    <div role="status">${fault && html`<p class="fault">${fault.message} ${fault.status === 409 && html`<button type="button" onClick=${() => theirs(true)}>Load theirs (undo brings yours back)</button> <button type="button" onClick=${() => theirs(false)}>Save mine over it</button>`}</p>`}</div>
    <${CardForm} key=${chosen ?? "new"} card=${chosen === null ? null : now.cards[chosen]} begin=${begin} onPut=${put} onLeave=${() => setChosen(null)} />
    ${now.cards.length === 0 && html`<p class="card quiet">No card yet. Choose above what the first one shows, and press Add card.</p>`}
    ${now.cards.length > 0 && html`<${Grid} cards=${now.cards} edit=${edit} />`}`;
}

const EMPTY = { kind: "value", source: "", field: "", fields: [], device: "", group: "", low: "", high: "", title: "", text: "" };

/** What the form holds, as a card. */
function cardOf({ kind, source, field, fields, device, group, low, high, title, text }) {
  if (kind === "text") return { kind, title, text, source: null, field: null, fields: [], device: null, devices: [], group: null, low: null, high: null };
  const several = kind === "chart" && !group ? named(device) : [];
  const end = (said) => (kind === "gauge" && said !== "" ? Number(said) : null);
  return { kind, title, text: "", source, field: KINDS[kind].hasField ? field : null, fields: kind === "chart" ? fields.filter((one) => one !== field) : [],
    device: group || several.length > 1 ? null : device.trim() || null, devices: several.length > 1 ? several : [], group: group || null, low: end(low), high: end(high) };
}

/** Names in a text with commas between. */
const named = (text) => [...new Set(text.split(",").map((one) => one.trim()).filter(Boolean))];

/** What a form begins with: a card that is changed, or what led here. */
const formOf = (card) => ({ ...EMPTY, ...Object.fromEntries(Object.entries(card).filter(([name, value]) => name in EMPTY && value !== null)), ...(card.devices?.length && { device: card.devices.join(", ") }) });

const FIELDS_MAX = 6; /* lines of one chart, as the server allows */

/** Further fields of a chart, each a line of its own. */
function Further({ fields, form, set }) {
  const toggle = (one) => set({ fields: form.fields.includes(one) ? form.fields.filter((other) => other !== one) : [...form.fields, one] });
  return html`<span class="choices" role="group" aria-label="Further fields">and ${fields.map((one) => html`<label key=${one}><input type="checkbox" checked=${form.fields.includes(one)} disabled=${!form.fields.includes(one) && form.fields.length + 1 >= FIELDS_MAX} onChange=${() => toggle(one)} /> ${words(one)}</label> `)}</span>`;
}

const kindOption = (kind) => html`<option key=${kind} value=${kind}>${KINDS[kind].title}</option>`;

function CardForm({ card, begin, onPut, onLeave }) {
  const loaded = useLoaded(async () => {
    const [streams, queries, groups] = await Promise.all([getAll("/v1/streams"), getAll("/v1/queries"), get("/v1/groups")]);
    return { streams: streams.items, queries: queries.items, groups: Object.keys(groups) };
  }, "sources");
  const [form, setForm] = useState({ ...formOf(card ?? begin), isKindChosen: card !== null });
  const set = (part) => setForm((before) => ({ ...before, ...part }));
  const chooseField = (field, type) => setForm((before) => ({ ...before, field, kind: before.isKindChosen ? before.kind : (kindsFor(type)[0] ?? before.kind) })); /* until somebody chooses one, the kind is what suits the field */
  const input = (key) => ({ value: form[key], onInput: ({ target }) => set({ [key]: target.value }) });
  const isText = form.kind === "text";
  const { hasField } = KINDS[form.kind];
  const put = (event) => {
    event.preventDefault();
    onPut(cardOf(form));
  };
  return html`<${Loaded} loaded=${loaded}>${({ streams, queries, groups }) => {
    const infos = streams.find((one) => one.name === form.source)?.fields ?? {};
    const fields = Object.keys(infos);
    const further = form.kind === "chart" && form.field ? fields.filter((one) => infos[one].type === "number" && one !== form.field) : [];
    const isChosen = fields.length > 0 && (form.field === "" || fields.includes(form.field));
    const suits = hasField ? kindsFor(infos[form.field]?.type) : [];
    const ofGroup = groups.length > 0 || form.group;
    return html`<form class="card card-form" aria-label=${card ? "Change the card" : "Add a card"} onSubmit=${put}>
      <label>Card <select aria-label="Kind of card" value=${form.kind} onChange=${({ target }) => set({ kind: target.value, isKindChosen: true })}>${suits.length > 0 ? html`<optgroup label=${`suits ${words(form.field)}`}>${suits.map(kindOption)}</optgroup><optgroup label="others">${Object.keys(KINDS).filter((kind) => !suits.includes(kind)).map(kindOption)}</optgroup>` : Object.keys(KINDS).map(kindOption)}</select></label>
      ${!isText && html`<${Choice} label="Stream or query" text="of" required none="stream or query" value=${form.source} onInput=${({ target }) => set({ source: target.value, field: "", fields: [] })}
        groups=${[["Streams", streams.map(({ name }) => name)], ["Queries", queries.map(({ name }) => name)]]} />`}
      ${hasField && (isChosen ? html`<label>field <select required aria-label="Field" value=${form.field} onChange=${({ target }) => chooseField(target.value, infos[target.value]?.type)}><option value="">choose</option>${fields.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>` : html`<label>field <input required aria-label="Field" ...${input("field")} /></label>`)}
      ${further.length > 0 && html`<${Further} fields=${further} form=${form} set=${set} />`}
      ${!isText && !form.group && html`<label>device <${DeviceField} id="devices-of-card" aria-label="device" placeholder=${form.kind === "chart" ? "all, or some: a, b" : "all"} isSeveral=${form.kind === "chart"} stream=${streams.some(({ name }) => name === form.source) ? form.source : ""} ...${input("device")} /></label>`}
      ${!isText && !form.device && ofGroup && html`<label>group <select aria-label="Group of devices" value=${form.group} onChange=${({ target }) => set({ group: target.value })}><option value="">all</option>${[...new Set([...groups, form.group].filter(Boolean))].map((one) => html`<option value=${one}>${one}</option>`)}</select></label>`}
      ${form.kind === "gauge" && ["low", "high"].map((end) => html`<label>${end === "low" ? "from" : "to"} <input type="number" step="any" class="short" placeholder="seen" aria-label=${end === "low" ? "Begins at" : "Ends at"} ...${input(end)} /></label>`)}
      ${isText && html`<label>text <input required maxlength="2000" ...${input("text")} /></label>`}
      <label>title <input placeholder="by itself" maxlength="100" ...${input("title")} /></label>
      <button class=${card ? "primary" : ""}>${card ? "Change" : "Add card"}</button>${card && html` <button type="button" onClick=${onLeave}>Leave as it is</button>`}</form>`;
  }}<//>`;
}
