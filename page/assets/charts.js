// Charts of a report, drawn as wide as their place.
import { make } from "./elements.js";

const HIGH = 260, LEFT = 52, RIGHT = 14, TOP = 26, BOTTOM = 42;
const COLOURS = 7; // .colour-0 … of page.css

/** The figure of a chart, drawn again whenever its width changes. */
export function figure(chart) {
  const place = make("div", { class: "plot" });
  const readout = make("p", { class: "readout" });
  const names = chart.series.map(([name], n) => key(`swatch colour-${n % COLOURS}`, name));
  const whole = make(
    "figure", {}, make("figcaption", {}, chart.title),
    make("ul", { class: "legend" }, names), place, readout,
  );
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (Math.abs(contentRect.width - width) < 1 || contentRect.width < 80) return;
    width = contentRect.width;
    place.replaceChildren(drawn(chart, width, readout));
  }).observe(place);
  return whole;
}

const key = (mark, name) => make("li", {}, make("span", { class: mark, "aria-hidden": "true" }), name);

function drawn(chart, width, readout) {
  const values = chart.series.map(([, all]) => all.map((value) => value ?? 0));
  const stacked = chart.kind !== "line";
  const tops = chart.places.map((_, at) =>
    stacked ? values.reduce((sum, all) => sum + all[at], 0) : Math.max(...values.map((all) => all[at])));
  const most = Math.max(...tops, ...chart.limits.map(([, value]) => value)) || 1;
  const scale = scales(chart, width, most);
  const marker = make("line", { class: "marker", y1: TOP, y2: HIGH - BOTTOM, visibility: "hidden" });
  const svg = make(
    "svg", { viewBox: `0 0 ${width} ${HIGH}`, width, height: HIGH, role: "img", tabindex: 0, "aria-label": described(chart) },
    axes(chart, scale, width), (stacked ? stacks : lines)(chart, values, scale), limitsOf(chart, scale, width), marker,
  );
  readable(svg, marker, chart, scale, readout);
  return svg;
}

/** Where values lie, in pixels. Bars stand in the middle of a band each. */
function scales(chart, width, most) {
  const { places } = chart, room = width - LEFT - RIGHT;
  const by = chart.x_is_log ? Math.log : (value) => value;
  const first = by(places[0]), span = by(places.at(-1)) - first || 1;
  const band = room / places.length;
  const ticks = steps(most);
  const top = ticks.at(-1);
  return {
    ticks, band,
    x: (at) => chart.kind === "bar" ? LEFT + band * (at + 0.5)
      : places.length === 1 ? LEFT + room / 2 : LEFT + (room * (by(places[at]) - first)) / span,
    y: (value) => HIGH - BOTTOM - ((HIGH - TOP - BOTTOM) * value) / top,
  };
}

/** 0 and some round values, the last of them `most` or more. */
function steps(most) {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => most / n <= 5);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, n) => n * step);
}

function axes(chart, scale, width) {
  const parts = scale.ticks.flatMap((tick) => [
    make("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: scale.y(tick), y2: scale.y(tick) }),
    make("text", { x: LEFT - 6, y: scale.y(tick) + 4, "text-anchor": "end" }, short(tick)),
  ]);
  const texts = chart.places.map(place_text);
  const room = Math.max(...texts.map((text) => text.length)) * 7 + 10;
  const apart = chart.places.length > 1 ? Math.abs(scale.x(1) - scale.x(0)) : room;
  const each = Math.max(1, Math.ceil(room / apart));
  let free = 0;
  texts.forEach((text, at) => {
    const half = text.length * 3.6, x = Math.min(scale.x(at), width - half);
    if (at % each || x - half < free) return;
    free = x + half + 4;
    parts.push(make("text", { x, y: HIGH - BOTTOM + 16, "text-anchor": "middle" }, text));
  });
  const middle = (LEFT + width - RIGHT) / 2;
  parts.push(make("text", { class: "axis", x: middle, y: HIGH - 8, "text-anchor": "middle" }, chart.x_title));
  parts.push(make("text", { class: "axis", x: 4, y: 12 }, chart.y_title));
  return parts;
}

const short = (value) => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
const place_text = (place) =>
  place >= 1024 && place % 1024 === 0 ? `${(place / 1024).toLocaleString("en")}k` : place.toLocaleString("en");

/** Areas, or bars, one upon the other. */
function stacks(chart, values, scale) {
  const below = chart.places.map(() => 0);
  return values.map((all, n) => {
    const from = [...below];
    all.forEach((value, at) => (below[at] += value));
    const shape = chart.kind === "bar" ? bars(from, below, scale) : area(from, below, scale);
    return make("path", { class: `area colour-${n % COLOURS}`, d: shape });
  });
}

function area(from, to, scale) {
  const up = to.map((value, at) => `${scale.x(at)},${scale.y(value)}`);
  const back = from.map((value, at) => `${scale.x(at)},${scale.y(value)}`).reverse();
  return `M${[...up, ...back].join("L")}Z`;
}

function bars(from, to, scale) {
  const half = Math.max(scale.band * 0.4, 0.5);
  return to.map((value, at) => value > from[at]
    ? `M${scale.x(at) - half},${scale.y(from[at])}H${scale.x(at) + half}V${scale.y(value)}H${scale.x(at) - half}Z` : "").join("");
}

function lines(chart, values, scale) {
  return chart.series.flatMap(([, all], n) => {
    const there = all.flatMap((value, at) => (value === null ? [] : [[scale.x(at), scale.y(values[n][at])]]));
    const colour = `colour-${n % COLOURS}`;
    return [
      make("path", { class: `line ${colour}`, d: `M${there.map((point) => point.join()).join("L")}` }),
      ...there.map(([cx, cy]) => make("circle", { class: `dot ${colour}`, cx, cy, r: 3.5 })),
    ];
  });
}

const limitsOf = (chart, scale, width) => chart.limits.flatMap(([name, value]) => [
  make("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: scale.y(value), y2: scale.y(value) }),
  make("text", { class: "limit-name", x: width - RIGHT, y: scale.y(value) - 4, "text-anchor": "end" }, name),
]);

const described = (chart) =>
  `${chart.title}. Arrow keys read the values of ${chart.series.map(([name]) => name).join(", ")}.`;

/** The values at a place, below the pointer or by the arrow keys. */
function readable(svg, marker, chart, scale, readout) {
  let at = -1;
  const show = (place) => {
    at = Math.max(0, Math.min(place, chart.places.length - 1));
    for (const end of ["x1", "x2"]) marker.setAttribute(end, scale.x(at));
    marker.setAttribute("visibility", "visible");
    const said = chart.series.flatMap(([name, all]) =>
      all[at] ? [`${name} ${all[at].toLocaleString("en", { maximumSignificantDigits: 4 })}`] : []);
    readout.textContent = `${chart.x_title} ${chart.places[at].toLocaleString("en")}: ${said.join(", ") || "nothing"}`;
  };
  const hide = () => {
    marker.setAttribute("visibility", "hidden");
    readout.textContent = "";
  };
  svg.addEventListener("pointermove", (event) => {
    const x = event.clientX - svg.getBoundingClientRect().left;
    const far = chart.places.map((_, n) => Math.abs(scale.x(n) - x));
    show(far.indexOf(Math.min(...far)));
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(at < 0 ? (step > 0 ? 0 : chart.places.length - 1) : at + step);
  });
}
