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

// Distributes the points of a period over columns; a point wider than a column is split.
function gather(points, begin, end, most) {
  const width = Math.max(5000, Math.ceil((end - begin) / most / 5000) * 5000), found = new Map();
  for (const [at, seconds, calls, errors, p50, p95] of points) {
    const from = Math.max(at, begin), to = Math.min(at + seconds * 1000, end), whole = to - at;
    for (let place = Math.floor((from - begin) / width); from < to && begin + place * width < to; place++) {
      const share = (Math.min(to, begin + (place + 1) * width) - Math.max(from, begin + place * width)) / whole;
      const had = found.get(place) || { place, calls: 0, errors: 0, took: 0, p95: 0 };
      found.set(place, { place, calls: had.calls + calls * share, errors: had.errors + errors * share, took: had.took + p50 * calls * share, p95: Math.max(had.p95, p95) });
    }
  }
  return { width, columns: [...found.values()].map((column) => ({ ...column, p50: column.took / column.calls })) };
}

// Above: calls and errors; below: latency from the median to p95.
export function traffic(points, begin, end) {
  const wide = room(), { width, columns } = gather(points, begin, end, wide / 6);
  const [calls, errors] = ["calls", "errors"].map((key) => Math.round(columns.reduce((sum, column) => sum + column[key], 0)));
  const perMinute = 60000 / width, most = niceTop(Math.max(...columns.map((column) => column.calls * perMinute), 1)), slowest = niceTop(Math.max(...columns.map((column) => column.p95), 0.1), 0.1);
  const step = ((wide - LEFT - RIGHT) * width) / (end - begin), x = (place) => LEFT + place * step, thick = Math.max(1, Math.min(step * 0.8, 14));
  const y = (value) => 100 - (value / most) * 84, z = (value) => 204 - (value / slowest) * 76;
  const summary = `${plural(calls, "call")} since ${new Date(begin).toLocaleString("en-GB")}, ${plural(errors, "error")}.`;
  const ticks = (scale, top, text) => [0, top].map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: scale(value), y2: scale(value) }),
    s("text", { class: "tick", x: LEFT - 6, y: scale(value) + 4, "text-anchor": "end" }, text(value)),
  ]);
  return s("svg", { class: "chart", viewBox: `0 0 ${wide} 228`, role: "img", "aria-label": summary },
    s("title", {}, summary), ticks(y, most, compact), ticks(z, slowest, (value) => (value < 1000 ? `${value} ms` : `${value / 1000} s`)),
    s("text", { class: "tick", x: LEFT, y: 10 }, "calls a minute, failed ones red"), s("text", { class: "tick", x: LEFT, y: 122 }, "how long they took, median to p95"), times(begin, end, 223, wide),
    columns.map((column) => s("g", {},
      s("title", {}, `${when(begin + column.place * width, end - begin)}: ${plural(Math.round(column.calls), "call")}, ${plural(Math.round(column.errors), "error")}, median ${ms(column.p50)}, p95 ${ms(column.p95)}`),
      s("rect", { class: "bar-fill", x: x(column.place), width: thick, y: y(column.calls * perMinute), height: 100 - y(column.calls * perMinute) }),
      column.errors ? s("rect", { class: "bar-bad", x: x(column.place), width: thick, y: Math.min(98, y(column.errors * perMinute)), height: 100 - Math.min(98, y(column.errors * perMinute)) }) : "",
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
