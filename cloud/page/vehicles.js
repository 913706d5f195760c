/* The live map: an arrow for each vehicle of `vehicle_position`, its trail, and its details on a click or a choice in the list.

   The basemap is /page/town.geojson (the simulated town), drawn as vectors under a graticule, so that it is readable without any
   tiles and for positions anywhere on earth. */

import { byId, clock, make, number, onThemeChange, say, themeColour } from "./dom.js";
import { VehicleLayer } from "./vehicle_layer.js";

export const VEHICLES_MAX = 5_000; /* kept and drawn; the vehicle heard longest ago goes first, and the page says so */
export const TRAIL_POINTS = 40; /* positions behind a vehicle */
export const STALE_MS = 20_000; /* a vehicle not heard for so long fades */
export const LABELS_MAX = 40; /* street names on the map */
const LABELS_FROM_ZOOM = { main: 13.25, ring: 13.25, street: 14.5 };
const GRATICULE_LINES = 6; /* about so many across the map */

const ROAD_METRES = { street: 16, main: 26, ring: 30 }; /* drawn wider than they are, to be seen */

const COLOURS = {
  speed: { field: "speed_kmh", ramp: ["#5b8def", "#22b8a6", "#f0b429"], from: 0, to: 90, ends: ["0", "90 km/h"] },
  battery: { field: "battery_percent", ramp: ["#e5484d", "#f0b429", "#2fa86a"], from: 0, to: 100, ends: ["0", "100 %"] },
};

const DETAILS = [
  ["street", "street", (v) => v ?? "–"],
  ["speed", "speed_kmh", (v) => `${number(v, 1)} km/h`],
  ["heading", "heading_deg", (v) => `${number(v)}°`],
  ["battery", "battery_percent", (v) => `${number(v, 1)} %`],
  ["driven", "odometer_km", (v) => `${number(v, 1)} km`],
  ["place", "lat", (v, r) => `${number(r.lat, 5)}, ${number(r.lon, 5)}`],
  ["heard", "t", (v) => clock(v)],
];

/** The colour at `share` (0 to 1) of a three-colour ramp. */
export function rampColour([low, middle, high], share) {
  const s = Math.min(1, Math.max(0, share)) * 2;
  const [a, b, k] = s < 1 ? [low, middle, s] : [middle, high, s - 1];
  const mix = [1, 3, 5].map((i) => Math.round(parseInt(a.slice(i, i + 2), 16) * (1 - k) + parseInt(b.slice(i, i + 2), 16) * k));
  return `rgb(${mix.join(" ")})`;
}

/** A round step for a graticule: 1, 2 or 5 times a power of ten, not less than `least` degrees. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}

export class Vehicles {
  constructor() {
    this.vehicles = new Map(); /* device -> {reading, from, trail, heardAt, colour, stale} */
    this.dropped = 0; /* vehicles that were left out at VEHICLES_MAX */
    this.colouring = COLOURS.speed;
    this.selected = null;
    this.map = L.map("map", { preferCanvas: true, zoomControl: false, zoomSnap: 0.25, minZoom: 2, maxZoom: 19, worldCopyJump: true });
    this.map.setView([20, 0], 2.5);
    this.map.attributionControl.setPrefix(false);
    L.control.zoom({ position: "topright" }).addTo(this.map);
    L.control.scale({ imperial: false, position: "bottomright" }).addTo(this.map);
    this.map.createPane("town").style.zIndex = 250;
    this.map.createPane("labels").style.zIndex = 450; /* over the roads, under the vehicles */
    this.townRenderer = L.canvas({ pane: "town" });
    this.graticule = L.layerGroup().addTo(this.map);
    this.labels = L.layerGroup().addTo(this.map);
    this.streets = [];
    this.placed = false;
    this.map.on("moveend", () => this.#drawGround());
    this.layer = new VehicleLayer(this.vehicles).addTo(this.map);
    this.map.on("click", ({ containerPoint }) => this.#select(this.layer.at(containerPoint)));
    this.map.on("mousemove", ({ containerPoint }) => this.#hover(this.layer.at(containerPoint)));
    this.map.on("zoomend", () => this.#restyle());
    byId("colour").addEventListener("change", (event) => this.#colourBy(event.target.value));
    byId("details").querySelector("button").addEventListener("click", () => this.#close());
    byId("details").addEventListener("keydown", ({ key }) => key === "Escape" && this.#close());
    byId("vehicle").addEventListener("focus", () => this.#fillList());
    byId("vehicle").addEventListener("change", ({ target }) => this.#select(target.value || null, { focus: true }));
    onThemeChange(() => this.#restyle());
    this.#colourBy("speed");
    this.#loadTown();
  }

  get count() {
    return this.vehicles.size;
  }

  get drawn() {
    return this.layer.drawn;
  }

  /** Keep a reading of vehicle_position; drawn at the next `render`. */
  take(reading) {
    if (typeof reading.lat !== "number" || typeof reading.lon !== "number") return;
    const vehicle = this.vehicles.get(reading.device) ?? { trail: [] };
    this.vehicles.delete(reading.device); /* so that the map's order is the order in which they were heard */
    this.vehicles.set(reading.device, vehicle);
    if (vehicle.reading) vehicle.trail.push((vehicle.from = [vehicle.reading.lat, vehicle.reading.lon]));
    if (vehicle.trail.length > TRAIL_POINTS) vehicle.trail.shift();
    vehicle.reading = reading;
    vehicle.heardAt = Date.now();
    this.#paint(vehicle);
  }

  render(now) {
    for (const device of [...this.vehicles.keys()].slice(0, Math.max(0, this.count - VEHICLES_MAX))) {
      this.vehicles.delete(device);
      this.dropped++;
    }
    for (const vehicle of this.vehicles.values()) vehicle.stale = now - vehicle.heardAt > STALE_MS;
    if (this.selected) this.#showDetails();
    byId("map-waiting").hidden = this.count > 0 && !this.dropped;
    if (this.dropped) say(byId("map-waiting"), `only the ${VEHICLES_MAX.toLocaleString("en")} vehicles that were heard last are drawn`);
    if (!this.placed && this.count > 0) this.#place();
  }

  #paint(vehicle) {
    const { field, ramp, from, to } = this.colouring;
    const value = vehicle.reading[field];
    vehicle.colour = typeof value === "number" ? rampColour(ramp, (value - from) / (to - from)) : themeColour("--muted");
  }

  #colourBy(name) {
    this.colouring = COLOURS[name];
    const [low, high] = byId("ramp-ends").children;
    byId("ramp").style.background = `linear-gradient(to right, ${this.colouring.ramp.join(", ")})`;
    [low.textContent, high.textContent] = this.colouring.ends;
    for (const vehicle of this.vehicles.values()) this.#paint(vehicle);
  }

  #select(device, { focus = false } = {}) {
    this.selected = this.layer.selected = device;
    byId("details").hidden = device === null;
    if (!device) return;
    this.#fillList();
    byId("vehicle").value = device;
    this.#showDetails();
    if (focus) byId("details").focus();
  }

  /* Back to where the choice was made, so that a keyboard goes on from there. */
  #close() {
    this.#select(null);
    byId("vehicle").value = "";
    byId("vehicle").focus();
  }

  #hover(device) {
    this.layer.hovered = device;
    byId("map").classList.toggle("over-vehicle", device !== null);
  }

  /* One stop for the Tab key however many vehicles there are. */
  #fillList() {
    const list = byId("vehicle");
    const names = [...this.vehicles.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const chosen = list.value;
    list.replaceChildren(new Option("none", ""), ...names.map((name) => new Option(name, name)));
    if (this.vehicles.has(chosen)) list.value = chosen;
  }

  #showDetails() {
    const reading = this.vehicles.get(this.selected)?.reading;
    if (!reading) return this.#close();
    const [title, list] = [byId("details").querySelector("h3"), byId("details").querySelector("dl")];
    say(title, this.selected);
    DETAILS.forEach(([label, field, text], i) => {
      if (!list.children[i]) list.append(make("div")), list.children[i].append(make("dt", "", label), make("dd"));
      say(list.children[i].lastChild, text(reading[field], reading));
    });
  }

  /* Show the town if a vehicle is in it, else the vehicles. */
  #place() {
    this.placed = true;
    const points = [...this.vehicles.values()].map(({ reading }) => [reading.lat, reading.lon]);
    const inTown = points.some((point) => this.built?.contains(point));
    this.map.fitBounds(inTown ? this.built : L.latLngBounds(points).pad(0.2), { maxZoom: 16, padding: [8, 8], animate: false });
  }

  async #loadTown() {
    const answer = await fetch("/page/town.geojson").catch(() => null);
    if (!answer?.ok) return;
    const geojson = await answer.json();
    this.streets = geojson.features.filter((f) => f.geometry.type === "LineString" && f.properties?.name);
    this.town = L.geoJSON(geojson, {
      renderer: this.townRenderer,
      interactive: false,
      style: (feature) => this.#townStyle(feature),
      pointToLayer: (feature, place) => L.circleMarker(place, { radius: 3, interactive: false }),
    }).addTo(this.map);
    this.built = L.geoJSON(this.streets).getBounds(); /* without the sea and fields around it */
    if (this.count > 0) this.#place();
    else this.map.fitBounds(this.built, { animate: false });
  }

  #townStyle({ geometry, properties }) {
    if (geometry.type === "LineString") {
      const metres = ROAD_METRES[properties.class] ?? ROAD_METRES.street;
      const weight = Math.max(1, metres / this.#metresPerPixel());
      return { color: themeColour(properties.class === "street" ? "--street" : "--road"), weight, opacity: 1, lineCap: "round" };
    }
    if (geometry.type === "Point") return { color: themeColour("--station"), weight: 2, fillColor: themeColour("--panel"), fillOpacity: 1 };
    return { stroke: false, fillColor: themeColour(properties.kind === "park" ? "--park" : "--water"), fillOpacity: 1 };
  }

  #metresPerPixel() {
    return (40_075_017 * Math.cos((this.map.getCenter().lat * Math.PI) / 180)) / 256 / 2 ** this.map.getZoom();
  }

  /* Road widths follow the zoom, colours the theme. */
  #restyle() {
    this.town?.setStyle((feature) => this.#townStyle(feature));
    this.#drawGround();
  }

  /* Lines of latitude and longitude at round steps, and street names where there is room. Redrawn when the map has moved. */
  #drawGround() {
    const box = this.map.getBounds();
    const step = roundStep((box.getEast() - box.getWest()) / GRATICULE_LINES);
    this.graticule.clearLayers();
    const style = { color: themeColour("--grid"), weight: 1, interactive: false, renderer: this.townRenderer };
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    for (let lon = Math.ceil(box.getWest() / step) * step; lon < box.getEast(); lon += step) {
      L.polyline([[box.getSouth(), lon], [box.getNorth(), lon]], style).addTo(this.graticule);
      this.#label([box.getSouth(), lon], `${lon.toFixed(digits)}°`, "degree east", this.graticule);
    }
    for (let lat = Math.ceil(box.getSouth() / step) * step; lat < box.getNorth(); lat += step) {
      L.polyline([[lat, box.getWest()], [lat, box.getEast()]], style).addTo(this.graticule);
      this.#label([lat, box.getWest()], `${lat.toFixed(digits)}°`, "degree north", this.graticule);
    }
    this.#nameStreets(box);
  }

  /* One name per street: at the middle one of its pieces that are in view. */
  #nameStreets(box) {
    this.labels.clearLayers();
    const zoom = this.map.getZoom();
    const pieces = new Map();
    for (const { geometry, properties } of this.streets) {
      const [lon, lat] = geometry.coordinates[Math.floor(geometry.coordinates.length / 2)];
      const from = LABELS_FROM_ZOOM[properties.bridge ? "street" : properties.class] ?? LABELS_FROM_ZOOM.street;
      if (zoom < from || !box.contains([lat, lon])) continue;
      pieces.set(properties.name, [...(pieces.get(properties.name) ?? []), [lat, lon]]);
    }
    for (const [name, places] of [...pieces].slice(0, LABELS_MAX)) {
      this.#label(places[Math.floor(places.length / 2)], name, "street", this.labels);
    }
  }

  #label(place, text, className, layer) {
    const icon = L.divIcon({ html: make("span", "", text), className, iconSize: [0, 0] });
    L.marker(place, { icon, interactive: false, keyboard: false, pane: "labels" }).addTo(layer);
  }
}
