/* Where a stream's devices are: points on a plain ground, moved as readings come; the view follows until a person moves it. */

import { html, useEffect, useRef } from "../vendor/htm/standalone.module.js";
import { onThemeChange, themeColour } from "../dom.js";

const POINTS_MAX = 1_000; /* drawn at most; more are counted in the card */

export function PlaceMap({ stream }) {
  const element = useRef(null);
  const kept = useRef({ map: null, points: new Map(), moved: false });
  const latest = useRef(stream);
  latest.current = stream;
  useEffect(() => {
    const state = kept.current;
    state.map = L.map(element.current, { preferCanvas: true, zoomControl: true, attributionControl: false, zoomSnap: 0.5 });
    state.map.setView([0, 0], 1);
    L.control.scale({ imperial: false }).addTo(state.map);
    const seen = () => (state.moved = true);
    element.current.addEventListener("pointerdown", seen);
    element.current.addEventListener("wheel", seen, { passive: true });
    const recolour = () => draw(state, latest.current);
    onThemeChange(recolour);
    return () => {
      document.removeEventListener("themechange", recolour);
      state.map.remove();
      state.points.clear();
    };
  }, [stream.name]);
  useEffect(() => draw(kept.current, stream));
  return html`<div class="place-map" ref=${element} aria-label=${`Map of ${stream.name}`} role="region"></div>`;
}

function draw(state, stream) {
  const colour = themeColour("--cpu");
  const there = new Set();
  for (const [device, reading] of [...stream.devices].slice(-POINTS_MAX)) {
    if (!isPlace(reading)) continue;
    there.add(device);
    const place = [reading.lat, reading.lon];
    const point = state.points.get(device);
    if (point) {
      point.setLatLng(place);
      if (point.options.color !== colour) point.setStyle({ color: colour, fillColor: colour });
    }
    else state.points.set(device, L.circleMarker(place, { radius: 6, weight: 2, color: colour, fillOpacity: 0.5 }).bindTooltip(textOf(device)).addTo(state.map));
  }
  for (const [device, point] of state.points) {
    if (there.has(device)) continue;
    point.remove();
    state.points.delete(device);
  }
  if (!state.moved && state.points.size) {
    const bounds = L.latLngBounds([...state.points.values()].map((point) => point.getLatLng()));
    if (!state.map.getBounds().contains(bounds) || state.map.getZoom() < 3) state.map.fitBounds(bounds.pad(0.3), { maxZoom: 15, animate: false });
  }
}

/* A tooltip takes HTML: a device's name goes in as text. */
function textOf(device) {
  const element = document.createElement("span");
  element.textContent = device;
  return element;
}

const isPlace = ({ lat, lon }) => typeof lat === "number" && typeof lon === "number" && Math.abs(lat) <= 90 && Math.abs(lon) <= 180;
