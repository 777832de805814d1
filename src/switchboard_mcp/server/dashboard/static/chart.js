// Charts over time (bars, lines, areas) with a crosshair; a histogram; bars per suite. All are SVG drawn at the width of their panel, so text keeps its size.

import { clear, compact, day, h, number, s, time } from "/static/dom.js";

const LEFT = 46,
  RIGHT = 8,
  TOP = 8,
  BOTTOM = 20;
const SECOND = 1000,
  MINUTE = 60000,
  HOUR = 3600000,
  DAY = 86400000;
const STEPS = [
  SECOND,
  5 * SECOND,
  10 * SECOND,
  30 * SECOND,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  5 * DAY,
  7 * DAY,
  14 * DAY,
];

export const msTick = (value) =>
  value < 1000 ? `${Number(value.toPrecision(3))} ms` : `${Number((value / 1000).toPrecision(3))} s`;

export function niceTop(value, least = 1) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, value)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((top) => top >= value) || 10 * power;
}

export function when(at, spanned) {
  const date = new Date(at),
    short = spanned < 10 * MINUTE ? time(date) : time(date).slice(0, 5);
  return spanned > 2 * DAY ? day(date).slice(5) : spanned > DAY ? `${day(date).slice(5)} ${short}` : short;
}

// Times at whole minutes, hours or days of the local clock.
function timeTicks(begin, end, most) {
  const step = STEPS.find((each) => (end - begin) / each <= most) || 30 * DAY,
    zone = new Date(begin).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let at = Math.ceil((begin - zone) / step) * step + zone; at <= end; at += step) ticks.push(at);
  return ticks;
}

// Widths of a column in seconds. Each point lies within one column, so every count is exact.
const WIDTHS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
export const per = (width) =>
  width < MINUTE
    ? `${width / SECOND} s`
    : width < HOUR
      ? `${width / MINUTE} min`
      : width < DAY
        ? `${width / HOUR} h`
        : `${width / DAY} d`;

// Adds up the points of a period in columns: [begin, width in s, calls, errors, p50, p95, saved]. The period grows to whole columns.
export function gather(points, begin, end, most) {
  const seen = points.filter(([at, seconds]) => at + seconds * SECOND > begin && at < end);
  const widest = Math.max(5, ...seen.map(([, seconds]) => seconds));
  const fits = (seconds) => seconds % widest === 0 && seconds * SECOND * most >= end - begin;
  const width = (WIDTHS.find(fits) || 86400 * Math.ceil((end - begin) / DAY / most)) * SECOND;
  const first = Math.floor(begin / width) * width,
    last = Math.ceil(end / width) * width,
    found = new Map();
  for (const [at, , calls, errors, p50, p95, saved] of points) {
    if (at < first || at >= last) continue;
    const begun = Math.floor(at / width) * width,
      had = found.get(begun) || { at: begun, calls: 0, errors: 0, took: 0, p95: 0, saved: 0 };
    found.set(begun, {
      at: begun,
      calls: had.calls + calls,
      errors: had.errors + errors,
      took: had.took + p50 * calls,
      p95: Math.max(had.p95, p95),
      saved: had.saved + (saved || 0),
    });
  }
  return {
    width,
    first,
    last,
    columns: [...found.values()]
      .sort((a, b) => a.at - b.at)
      .map((column) => ({
        ...column,
        ok: column.calls - column.errors,
        p50: column.calls ? column.took / column.calls : 0,
      })),
  };
}

// Tokens saved in a range, summed up from its begin: of the stored history if there is one, else of the samples since the start of the server.
export function savedIn(points, isStored, samples, begin, end) {
  const from = isStored || !samples.length ? begin : Math.max(begin, samples[0][0]);
  let sum = 0;
  const line = [{ at: from, saved: 0 }];
  if (isStored)
    for (const [at, seconds, , , , , saved] of points) {
      if (at + seconds * SECOND <= begin || !saved) continue;
      line.push({ at: Math.min(at + seconds * SECOND, end), saved: (sum += saved) });
    }
  else {
    const before = samples.filter(([at]) => at <= from),
      base = before.length ? before[before.length - 1][1] : 0;
    for (const [at, saved] of samples) if (at > from && at <= end) line.push({ at, saved: (sum = saved - base) });
  }
  line.push({ at: end, saved: sum });
  return { from, sum, line };
}

export class TimeChart {
  // series: [{ key, name, kind: "bar" | "line" | "area", ink: 1..6 }]; format(value) for ticks and the crosshair; pick(from, to) when a column is clicked.
  constructor({ label, series, format = compact, tick = format, height = 132, pick, least = 1 }) {
    Object.assign(this, { label, series, format, tick, height, pick, least, data: null });
    this.tip = h("div", { class: "chart-tip", hidden: true });
    this.node = h("div", {
      class: `chart-box ${pick ? "pickable" : ""}`,
      onpointermove: (event) => this.point(event),
      onpointerleave: () => this.hide(),
      onclick: (event) => this.clicked(event),
    });
    this.legend = h(
      "div",
      { class: "legend" },
      series.map((each) => h("span", {}, h("i", { class: `swatch ink-${each.ink}` }), each.name)),
    );
    this.outer = h("div", {}, this.node);
    new ResizeObserver(([entry]) => {
      const wide = Math.round(entry.contentRect.width);
      if (wide && wide !== this.wide) {
        this.wide = wide;
        this.draw();
      }
    }).observe(this.node);
  }

  // columns: [{ at, [key]: value }] in order; width: milliseconds that a column covers, 0 for points.
  set(columns, width, begin, end, summary) {
    this.data = { columns, width, begin, end, summary };
    this.draw();
    return this;
  }

  draw() {
    if (!this.data || !this.wide) return;
    const { columns, width, begin, end, summary } = this.data,
      { wide, height, series } = this;
    const bars = series.filter(({ kind }) => kind === "bar"),
      others = series.filter(({ kind }) => kind !== "bar");
    const largest = Math.max(
      0,
      ...columns.map((column) =>
        Math.max(
          bars.reduce((sum, { key }) => sum + column[key], 0),
          ...others.map(({ key }) => column[key] || 0),
        ),
      ),
    );
    const top = niceTop(largest, this.least),
      bottom = height - BOTTOM;
    const x = (at) => LEFT + ((at - begin) / (end - begin || 1)) * (wide - LEFT - RIGHT),
      y = (value) => bottom - (value / top) * (bottom - TOP);
    this.x = x;
    const thick = Math.max(1, ((wide - LEFT - RIGHT) * width) / (end - begin || 1) - 1);
    const rects = new Map(bars.map(({ key }) => [key, ""]));
    for (const column of columns) {
      let floor = 0;
      for (const { key } of bars) {
        const value = column[key];
        if (!value) continue;
        const high = Math.max(1.5, y(floor) - y(floor + value));
        rects.set(
          key,
          `${rects.get(key)}M${x(column.at).toFixed(1)} ${(y(floor) - high).toFixed(1)}h${thick.toFixed(1)}v${high.toFixed(1)}h-${thick.toFixed(1)}z`,
        );
        floor += value;
      }
    }
    const lines = others.map((each) => {
      let path = "",
        before = -Infinity,
        run = 0,
        alone = "";
      columns.forEach((column, place) => {
        const px = x(column.at + width / 2).toFixed(1),
          py = y(column[each.key] || 0).toFixed(1),
          joined = each.kind === "area" || column.at - before <= Math.max(width * 1.5, this.gap || 0);
        if (!joined && run === 1) alone += path.slice(path.lastIndexOf("M"));
        path += joined && place ? (each.kind === "area" ? `H${px}V${py}` : `L${px} ${py}`) : `M${px} ${py}`;
        run = joined ? run + 1 : 1;
        before = column.at;
      });
      if (each.kind === "area" && path) path += `H${x(end).toFixed(1)}`;
      const dots =
        columns.length <= 60 && each.kind === "line"
          ? columns.map((column) =>
              s("circle", {
                class: `ink-${each.ink}`,
                cx: x(column.at + width / 2),
                cy: y(column[each.key] || 0),
                r: 1.8,
              }),
            )
          : "";
      return [
        each.kind === "area" && path
          ? s("path", { class: `area ink-${each.ink}`, d: `${path}V${y(0)}H${x(columns[0].at).toFixed(1)}Z` })
          : "",
        path ? s("path", { class: `stroke ink-${each.ink}`, d: path }) : "",
        dots,
      ];
    });
    this.cross = s("line", { class: "cross", y1: TOP, y2: bottom, visibility: "hidden" });
    const spanned = end - begin;
    clear(
      this.node,
      s(
        "svg",
        { class: "chart", width: wide, height, role: "img", "aria-label": `${this.label}. ${summary || ""}` },
        [0, top / 2, top].map((value) => [
          s("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value) }),
          s("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, this.tick(value)),
        ]),
        timeTicks(begin, end, Math.max(2, wide / 110)).map((at) => {
          const text = when(at, spanned),
            half = text.length * 3.4; // of a digit that is 6.8 pixels wide
          return s(
            "text",
            {
              class: "tick",
              x: Math.max(LEFT + 14, Math.min(wide - half, x(at))),
              y: height - 5,
              "text-anchor": "middle",
            },
            text,
          );
        }),
        bars.map(({ key, ink }) => s("path", { class: `fill ink-${ink}`, d: rects.get(key) })),
        lines,
        this.cross,
      ),
      this.tip,
    );
    if (!columns.length) this.node.append(h("p", { class: "chart-empty" }, "Nothing in this period."));
  }

  nearest(event) {
    if (!this.data || !this.data.columns.length || !this.x) return null;
    const at = event.clientX - this.node.getBoundingClientRect().left,
      { columns, width } = this.data;
    let best = null,
      distance = Infinity;
    for (const column of columns) {
      const far = Math.abs(this.x(column.at + width / 2) - at);
      if (far < distance) {
        best = column;
        distance = far;
      }
    }
    return distance < 40 ? best : null;
  }

  point(event) {
    const column = this.nearest(event);
    if (!column) return this.hide();
    const { width, begin, end } = this.data,
      place = this.x(column.at + width / 2);
    this.cross.setAttribute("visibility", "visible");
    this.cross.setAttribute("x1", place);
    this.cross.setAttribute("x2", place);
    clear(
      this.tip,
      h(
        "b",
        {},
        `${end - begin > DAY ? `${day(new Date(column.at))} ` : ""}${time(new Date(column.at))}${width ? `, ${per(width)}` : ""}`,
      ),
      this.series.map((each) =>
        h(
          "span",
          {},
          h("i", { class: `swatch ink-${each.ink}` }),
          `${each.name} `,
          h("b", { class: "num" }, this.format(column[each.key] || 0)),
        ),
      ),
    );
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(this.wide - wide, place + (place > this.wide / 2 ? -wide - 10 : 10)))}px`;
  }

  hide() {
    this.tip.hidden = true;
    if (this.cross) this.cross.setAttribute("visibility", "hidden");
  }

  clicked(event) {
    const column = this.pick && this.nearest(event);
    if (column) this.pick(column.at, column.at + (this.data.width || 60000));
  }
}

// How calls of one subtool are distributed over durations.
export function histogram(bins, label) {
  const most = Math.max(1, ...bins),
    wide = bins.length * 7,
    tall = 26;
  return s(
    "svg",
    {
      class: "histogram",
      viewBox: `0 0 ${wide} ${tall}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    bins.map((count, place) =>
      count
        ? s("rect", {
            class: "fill ink-1",
            x: place * 7,
            width: 6,
            y: tall - Math.max(1.5, (count / most) * tall),
            height: Math.max(1.5, (count / most) * tall),
          })
        : "",
    ),
  );
}

export function sparkline(values, ink = 1) {
  if (values.length < 2) return "";
  const top = Math.max(...values, 1e-9),
    points = values.map(
      (value, place) => `${((place / (values.length - 1)) * 100).toFixed(1)} ${(23 - (value / top) * 21).toFixed(1)}`,
    );
  return s(
    "svg",
    { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: `area ink-${ink}`, d: `M${points.join("L")}L100 24L0 24Z` }),
    s("path", { class: `stroke ink-${ink}`, d: `M${points.join("L")}` }),
  );
}

export function bars(suites, most = 8) {
  const shown = suites.slice(0, most),
    rest = suites.slice(most).reduce((sum, suite) => sum + suite.saved, 0);
  if (rest) shown.push({ suite: `${suites.length - most} more`, saved: rest });
  const top = Math.max(1, ...shown.map((suite) => Math.abs(suite.saved)));
  return h(
    "table",
    { class: "bars" },
    h("caption", { class: "hidden" }, "Tokens saved per suite"),
    h("colgroup", {}, h("col", { class: "bar-name" }), h("col", {}), h("col", { class: "bar-sum" })),
    h(
      "tbody",
      {},
      shown.map((suite) =>
        h(
          "tr",
          {},
          h("th", { scope: "row", title: suite.suite }, suite.suite),
          h(
            "td",
            {},
            s(
              "svg",
              { class: "bar-line", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
              s("rect", {
                class: suite.saved < 0 ? "fill ink-2" : "fill ink-1",
                x: 0,
                y: 1,
                height: 8,
                width: Math.max(0.5, (Math.abs(suite.saved) / top) * 100),
                rx: 1,
              }),
            ),
          ),
          h("td", { class: "num" }, number(suite.saved)),
        ),
      ),
    ),
  );
}
