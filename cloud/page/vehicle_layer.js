/* All vehicles on one canvas: a thousand arrows cost one drawing, not a thousand elements of the document.

   Vehicles glide from their last position to the new one. A frame that was expensive is followed by a longer pause, so that the page
   spends at most a third of a core on drawing however many there are. */

import { themeColour } from "./dom.js";

export const GLIDE_MS = 1_000;
export const FRAME_MS = 40;
export const PAUSE_FACTOR = 2; /* pause after a frame: so many times what it took */
export const TRAILS_MAX = 300; /* with more vehicles than these only the selected one has a trail */
export const REACH_PX = 16; /* how near a click must be */
const ARROW = [[0, -10], [7.6, 10], [0, 5.6], [-7.6, 10]];

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Where a vehicle is drawn at a time: between its last two positions. */
export function glide(vehicle, now) {
  const { lat, lon } = vehicle.reading;
  const from = vehicle.from;
  const share = from && !still.matches ? Math.min(1, (now - vehicle.heardAt) / GLIDE_MS) : 1;
  return share === 1 ? [lat, lon] : [from[0] + (lat - from[0]) * share, from[1] + (lon - from[1]) * share];
}

export const VehicleLayer = L.Layer.extend({
  initialize(vehicles) {
    this.vehicles = vehicles; /* device -> {reading, from, heardAt, trail, colour, stale} */
    this.selected = null;
    this.hovered = null;
    this.drawn = 0;
    this.points = new Map(); /* device -> where it was drawn last, in pixels of the map */
  },

  onAdd(map) {
    this._map = map;
    map.createPane("vehicles").style.zIndex = 600;
    this.canvas = L.DomUtil.create("canvas", "", map.getPane("vehicles"));
    map.on("move moveend zoomend viewreset resize", this.draw, this);
    map.on("zoomstart", () => (this.canvas.hidden = true));
    map.on("zoomend", () => (this.canvas.hidden = false));
    this._next();
  },

  /** The vehicle at a point of the map, or null. */
  at(point) {
    let [nearest, best] = [null, REACH_PX ** 2];
    for (const [device, [x, y]] of this.points) {
      const distance = (x - point.x) ** 2 + (y - point.y) ** 2;
      if (distance <= best) [nearest, best] = [device, distance];
    }
    return nearest;
  },

  _next() {
    const began = performance.now();
    if (!document.hidden) this.draw();
    const took = performance.now() - began;
    setTimeout(() => requestAnimationFrame(() => this._next()), Math.max(FRAME_MS, PAUSE_FACTOR * took));
  },

  draw() {
    const map = this._map;
    const size = map.getSize();
    const scale = window.devicePixelRatio || 1;
    L.DomUtil.setPosition(this.canvas, map.containerPointToLayerPoint([0, 0]));
    if (this.canvas.width !== size.x * scale || this.canvas.height !== size.y * scale) {
      [this.canvas.width, this.canvas.height] = [size.x * scale, size.y * scale];
      [this.canvas.style.width, this.canvas.style.height] = [`${size.x}px`, `${size.y}px`];
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, size.x, size.y);
    const now = Date.now();
    this.points.clear();
    for (const [device, vehicle] of this.vehicles) {
      const { x, y } = map.latLngToContainerPoint(glide(vehicle, now));
      this.points.set(device, [x, y]);
    }
    const withTrails = this.vehicles.size <= TRAILS_MAX;
    for (const [device, vehicle] of this.vehicles) if (withTrails || device === this.selected) this._trail(pen, device, vehicle);
    const [panel, line] = [themeColour("--panel"), themeColour("--line")];
    for (const [device, vehicle] of this.vehicles) this._arrow(pen, this.points.get(device), vehicle, panel, line);
    for (const device of new Set([this.selected, this.hovered])) if (this.points.has(device)) this._name(pen, device);
    this.drawn = this.points.size;
  },

  _trail(pen, device, vehicle) {
    if (vehicle.trail.length < 2) return;
    pen.beginPath();
    for (const place of vehicle.trail) {
      const { x, y } = this._map.latLngToContainerPoint(place);
      pen.lineTo(x, y);
    }
    pen.lineTo(...this.points.get(device));
    pen.globalAlpha = vehicle.stale ? 0.2 : 0.55;
    pen.strokeStyle = vehicle.colour;
    pen.lineWidth = 2.5;
    pen.stroke();
    pen.globalAlpha = 1;
  },

  _arrow(pen, [x, y], vehicle, panel, line) {
    pen.globalAlpha = vehicle.stale ? 0.35 : 0.9;
    pen.fillStyle = panel;
    pen.strokeStyle = line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.arc(x, y, 13, 0, 2 * Math.PI);
    pen.fill();
    pen.stroke();
    const angle = ((vehicle.reading.heading_deg ?? 0) * Math.PI) / 180;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    pen.beginPath();
    for (const [dx, dy] of ARROW) pen.lineTo(x + dx * cos - dy * sin, y + dx * sin + dy * cos);
    pen.fillStyle = vehicle.colour;
    pen.fill();
    pen.globalAlpha = 1;
  },

  _name(pen, device) {
    const [x, y] = this.points.get(device);
    if (device === this.selected) {
      pen.beginPath();
      pen.arc(x, y, 15, 0, 2 * Math.PI);
      pen.strokeStyle = themeColour("--accent");
      pen.lineWidth = 2;
      pen.stroke();
    }
    pen.font = "600 11px system-ui, sans-serif";
    pen.lineWidth = 3;
    pen.strokeStyle = themeColour("--land");
    pen.strokeText(device, x + 17, y + 4);
    pen.fillStyle = themeColour("--text");
    pen.fillText(device, x + 17, y + 4);
  },
});
