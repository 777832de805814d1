// Tokens saved, drawn: a line over time, and a bar for each suite.

import { compact, h, number, s } from "/static/dom.js";

const WIDTH = 640, HEIGHT = 180, LEFT = 46, RIGHT = 10, TOP = 10, BOTTOM = 22;

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= value) || 10 * power;
}

function when(at, spanned) {
  const date = new Date(at);
  return spanned > 86400000 ? date.toLocaleDateString("en-CA") : date.toLocaleTimeString("en-GB", spanned < 600000 ? {} : { hour: "2-digit", minute: "2-digit" });
}

export function line(points, now) {
  const begin = points[0][0], end = Math.max(now, begin + 1000, points[points.length - 1][0]);
  const top = niceTop(Math.max(...points.map((point) => point[1]), 10));
  const x = (at) => LEFT + ((at - begin) / (end - begin)) * (WIDTH - LEFT - RIGHT);
  const y = (saved) => HEIGHT - BOTTOM - (saved / top) * (HEIGHT - TOP - BOTTOM);
  let path = `M${x(begin).toFixed(1)} ${y(points[0][1]).toFixed(1)}`;
  for (const [at, saved] of points.slice(1)) path += `H${x(at).toFixed(1)}V${y(saved).toFixed(1)}`;
  path += `H${x(end).toFixed(1)}`;
  const area = `${path}V${y(0)}H${x(begin)}Z`;
  const last = points[points.length - 1][1];
  const told = `Tokens saved since ${new Date(begin).toLocaleString("en-GB")}: ${number(last)}.`;
  const grid = [0, top / 2, top].map((value) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, compact(value)),
  ]);
  const times = [0, 0.5, 1].map((part) => s("text", { class: "tick", x: x(begin + part * (end - begin)), y: HEIGHT - 5, "text-anchor": ["start", "middle", "end"][part * 2] }, when(begin + part * (end - begin), end - begin)));
  return s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told },
    s("title", {}, told), grid, times, s("path", { class: "area", d: area }), s("path", { class: "stroke", d: path }),
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
