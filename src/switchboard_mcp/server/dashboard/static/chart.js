// Charts: calls and their latency over time; tokens saved, as a line over time and as bars per suite.

import { compact, h, ms, number, plural, s } from "/static/dom.js";

// Drawn at the width of the card, so text keeps its size; a phone has half the width.
const WIDE = 640, NARROW = 340, HEIGHT = 180, LEFT = 48, RIGHT = 10, TOP = 10, BOTTOM = 22;
export const narrow = matchMedia("(max-width: 720px)");
const room = () => (narrow.matches ? NARROW : WIDE);

function niceTop(value, least = 1) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, value)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((top) => top >= value) || 10 * power;
}

function when(at, spanned) {
  const date = new Date(at);
  return spanned > 86400000 ? `${date.toLocaleDateString("en-CA").slice(5)} ${date.toLocaleTimeString("en-GB").slice(0, 5)}` : date.toLocaleTimeString("en-GB", spanned < 600000 ? {} : { hour: "2-digit", minute: "2-digit" });
}

function times(begin, end, y, wide) {
  return [0, 0.5, 1].map((part) => s("text", { class: "tick", x: LEFT + part * (wide - LEFT - RIGHT), y, "text-anchor": ["start", "middle", "end"][part * 2] }, when(begin + part * (end - begin), end - begin)));
}

// Widths of a column in seconds. Each point lies within one column, so every count is exact.
const WIDTHS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

const per = (width) => (width < 60000 ? `${width / 1000} s` : width < 3600000 ? `${width / 60000} min` : `${width / 3600000} h`);

// Adds up the points of a period in columns. The period grows to whole columns.
function gather(points, begin, end, most) {
  const seen = points.filter(([at, seconds]) => at + seconds * 1000 > begin && at < end);
  const widest = Math.max(5, ...seen.map(([, seconds]) => seconds));
  const fits = (seconds) => seconds % widest === 0 && seconds * 1000 * most >= end - begin;
  const width = (WIDTHS.find(fits) || 86400 * Math.ceil((end - begin) / 86400000 / most)) * 1000;
  const first = Math.floor(begin / width) * width, last = Math.ceil(end / width) * width, found = new Map();
  for (const [at, , calls, errors, p50, p95] of points) {
    if (at < first || at >= last) continue;
    const place = Math.floor((at - first) / width), had = found.get(place) || { place, calls: 0, errors: 0, took: 0, p95: 0 };
    found.set(place, { place, calls: had.calls + calls, errors: had.errors + errors, took: had.took + p50 * calls, p95: Math.max(had.p95, p95) });
  }
  return { width, first, last, columns: [...found.values()].map((column) => ({ ...column, p50: column.took / column.calls })) };
}

// Above: calls and errors; below: latency from the median to p95.
export function traffic(points, since, until) {
  const wide = room(), { width, first: begin, last: end, columns } = gather(points, since, until, wide / 6);
  const [calls, errors] = ["calls", "errors"].map((key) => columns.reduce((sum, column) => sum + column[key], 0));
  const most = niceTop(Math.max(...columns.map((column) => column.calls), 1)), slowest = niceTop(Math.max(...columns.map((column) => column.p95), 0.1), 0.1);
  const step = ((wide - LEFT - RIGHT) * width) / (end - begin), x = (place) => LEFT + place * step, thick = Math.max(1, Math.min(step * 0.8, 14));
  const y = (value) => 100 - (value / most) * 84, z = (value) => 204 - (value / slowest) * 76;
  const summary = `${plural(calls, "call")} since ${new Date(begin).toLocaleString("en-GB")}, ${plural(errors, "error")}.`;
  const ticks = (scale, top, text) => [0, top].map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: scale(value), y2: scale(value) }),
    s("text", { class: "tick", x: LEFT - 6, y: scale(value) + 4, "text-anchor": "end" }, text(value)),
  ]);
  return s("svg", { class: "chart", viewBox: `0 0 ${wide} 228`, role: "img", "aria-label": summary },
    s("title", {}, summary), ticks(y, most, compact), ticks(z, slowest, (value) => (value < 1000 ? `${value} ms` : `${value / 1000} s`)),
    s("text", { class: "tick", x: LEFT, y: 10 }, `calls per ${per(width)}, failed ones red`), s("text", { class: "tick", x: LEFT, y: 122 }, "how long they took, median to p95"), times(begin, end, 223, wide),
    columns.map((column) => s("g", {},
      s("title", {}, `${when(begin + column.place * width, end - begin)}: ${plural(column.calls, "call")}, ${plural(column.errors, "error")}, median ${ms(column.p50)}, p95 ${ms(column.p95)}`),
      s("rect", { class: "bar-fill", x: x(column.place), width: thick, y: y(column.calls), height: 100 - y(column.calls) }),
      column.errors ? s("rect", { class: "bar-bad", x: x(column.place), width: thick, y: Math.min(98, y(column.errors)), height: 100 - Math.min(98, y(column.errors)) }) : "",
      s("rect", { class: "range", x: x(column.place), width: thick, y: z(column.p95), height: Math.max(1, z(column.p50) - z(column.p95)) }),
      s("rect", { class: "bar-fill", x: x(column.place), width: thick, y: z(column.p50) - 1, height: 2 }))));
}

export function line(points, now) {
  const wide = room(), begin = points[0][0], end = Math.max(now, begin + 1000, points[points.length - 1][0]);
  const top = niceTop(Math.max(...points.map((point) => point[1]), 10));
  const x = (at) => LEFT + ((at - begin) / (end - begin)) * (wide - LEFT - RIGHT);
  const y = (saved) => HEIGHT - BOTTOM - (saved / top) * (HEIGHT - TOP - BOTTOM);
  let path = `M${x(begin).toFixed(1)} ${y(points[0][1]).toFixed(1)}`;
  for (const [at, saved] of points.slice(1)) path += `H${x(at).toFixed(1)}V${y(saved).toFixed(1)}`;
  path += `H${x(end).toFixed(1)}`;
  const area = `${path}V${y(0)}H${x(begin)}Z`;
  const last = points[points.length - 1][1];
  const summary = `Tokens saved since ${new Date(begin).toLocaleString("en-GB")}: ${number(last)}.`;
  const grid = [0, top / 2, top].map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, compact(value)),
  ]);
  return s("svg", { class: "chart", viewBox: `0 0 ${wide} ${HEIGHT}`, role: "img", "aria-label": summary },
    s("title", {}, summary), grid, times(begin, end, HEIGHT - 5, wide), s("path", { class: "area", d: area }), s("path", { class: "stroke", d: path }),
    s("circle", { class: "dot", cx: x(end), cy: y(last), r: 3.5 }));
}

export function bars(suites, most = 8) {
  const shown = suites.slice(0, most), rest = suites.slice(most).reduce((sum, suite) => sum + suite.saved, 0);
  if (rest) shown.push({ suite: `${suites.length - most} more`, saved: rest });
  const top = Math.max(1, ...shown.map((suite) => Math.abs(suite.saved)));
  return h("table", { class: "bars" },
    h("caption", { class: "hidden" }, "Tokens saved per suite"),
    h("colgroup", {}, h("col", { class: "bar-name" }), h("col", {}), h("col", { class: "bar-sum" })),
    h("tbody", {}, shown.map((suite) => h("tr", {},
      h("th", { scope: "row", title: suite.suite }, suite.suite),
      h("td", {}, s("svg", { class: "bar-line", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { class: suite.saved < 0 ? "bar-bad" : "bar-fill", x: 0, y: 1, height: 8, width: Math.max(0.5, (Math.abs(suite.saved) / top) * 100), rx: 1 }))),
      h("td", { class: "num" }, number(suite.saved))))));
}
