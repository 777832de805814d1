// Calls: the live list with its filters, a waterfall of a minute, latency per subtool, errors by cause.

import { callView } from "/static/call.js";
import { histogram } from "/static/chart.js";
import { clear, clock, h, ms, number, percent, plural, throttle, time } from "/static/dom.js";
import { List } from "/static/list.js";
import { go, href, replace } from "/static/router.js";
import { get, known, now, on } from "/static/server.js";
import { empty, failed, failure, head, outcome, searchBox, tabs } from "/static/ui.js";

const TABS = ["list", "waterfall", "latency", "errors"];
const FILTERS = ["q", "client", "session", "child", "subtool", "outcome", "kind", "who", "from", "to", "minMs"];
// Hosts choose names, and so how many there are; the text filter finds the rest.
const MAX_OPTIONS = 300;
const LOOK_BACK = [
  ["", "any time"],
  ["5", "last 5 min"],
  ["15", "last 15 min"],
  ["60", "last hour"],
  ["360", "last 6 h"],
];

const head_ = (tab, actions) => [
  head("Calls", { actions }),
  tabs(
    "Calls",
    [
      ["list", "Live", href("calls")],
      ["waterfall", "Waterfall", href("calls", ["waterfall"])],
      ["latency", "Latency", href("calls", ["latency"])],
      ["errors", "Errors", href("calls", ["errors"])],
    ],
    tab,
  ),
];

export function callsView(view, route, title) {
  let leave = () => {};
  const draw = (next) => {
    leave();
    const [part] = next.parts;
    title("Calls");
    leave = (
      part && /^\d+$/.test(part)
        ? callView
        : { waterfall: waterfallTab, latency: latencyTab, errors: errorsTab }[part] || listTab
    )(view, next, title);
  };
  const up = () => {
    if (/^#calls/.test(location.hash) && location.hash.includes("/")) go("calls", [], remembered);
  };
  view.addEventListener("up", up);
  draw(route);
  return {
    leave: () => {
      leave();
      view.removeEventListener("up", up);
    },
    update: draw,
  };
}

// The filters and the call to return to from its details.
let remembered = {},
  opened = 0;

const haystack = (call) =>
  (call.hay ||=
    `${call.child} ${call.subtool || ""} ${call.client || ""} ${call.who || ""} ${call.outcome || ""} ${call.kind}`.toLowerCase());

// The same rules as those of the server's filters.
export function matcher(wanted) {
  const query = (wanted.q || "").toLowerCase(),
    from = Number(wanted.from) || 0,
    to = Number(wanted.to) || Infinity,
    least = Number(wanted.minMs) || 0;
  return (call) =>
    (!query || haystack(call).includes(query)) &&
    (!wanted.child || call.child === wanted.child) &&
    (!wanted.subtool || call.subtool === wanted.subtool) &&
    (!wanted.session || call.session === wanted.session) &&
    (!wanted.client || call.client === wanted.client) &&
    (!wanted.who || call.who === wanted.who) &&
    (!wanted.kind || call.kind === wanted.kind) &&
    (!wanted.outcome || (wanted.outcome === "failed" ? failed(call.outcome) : call.outcome === wanted.outcome)) &&
    call.at >= from &&
    call.at < to &&
    (!least || call.ms >= least);
}

function listTab(view, route) {
  const wanted = Object.fromEntries(FILTERS.map((key) => [key, route.query[key] || ""]));
  let paused = false,
    held = 0,
    items = [],
    older = 0,
    match = matcher(wanted),
    turn = 0;
  const list = new List({
    label: "Calls",
    rowHeight: 29,
    key: (call) => call.seq,
    empty: "No calls yet. Finished calls appear here.",
    to: (call) => href("calls", [call.seq]),
    open: (call) => {
      opened = call.seq;
      go("calls", [call.seq]);
    },
    columns: [
      ["w-time", "Time", (call) => clock(call.at)],
      ["w-kind", "Kind", (call) => call.kind],
      ["w-child", "Child", (call) => call.child],
      ["grow cut mono", "Subtool", (call) => call.subtool || ""],
      ["w-who", "Client", (call) => call.client || call.who || ""],
      ["w-ms", "Took", (call) => ms(call.ms)],
      ["w-out", "Outcome", (call) => outcome(call.outcome)],
    ],
    more: async () => {
      const mine = turn,
        before = items.length ? items[items.length - 1].seq : 0;
      try {
        const page = await get("/api/calls", {
          ...wanted,
          before: before || (known.calls.length ? known.calls[known.calls.length - 1].seq + 1 : 0),
          limit: 500,
        });
        if (mine !== turn) return;
        // Calls may have come in by the event stream meanwhile.
        const oldest = items.length ? items[items.length - 1].seq : Infinity,
          fresh = page.calls.filter((call) => call.seq < oldest).sort((a, b) => b.seq - a.seq);
        older = page.next || 0;
        items = [...items, ...(page.next === undefined ? [] : fresh)];
        list.set(items, !older);
        counted();
      } catch (problem) {
        list.ended = true;
        failure(problem);
      }
    },
  });
  const count = h("span", { class: "dim", role: "status" });
  const counted = () => {
    count.textContent = paused
      ? `${plural(held, "call")} held`
      : `${plural(items.length, "call")}${older ? ", older ones below" : ""}`;
  };
  const again = () => {
    turn++;
    match = matcher(wanted);
    remembered = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value));
    replace("calls", [], wanted);
    items = known.calls.filter(match).reverse();
    older = 0;
    list.reset();
    list.set(items, false);
    counted();
    clear(
      chips,
      FILTERS.filter((key) => wanted[key] && !boxes[key]).map((key) =>
        h(
          "button",
          {
            type: "button",
            "aria-label": `Remove the filter ${key}`,
            onclick: () => {
              wanted[key] = "";
              again();
            },
          },
          `${key} ${key === "from" || key === "to" ? clock(Number(wanted[key])) : wanted[key]} ✕`,
        ),
      ),
    );
  };
  const chips = h("span", { class: "row wrapping" }),
    boxes = {};
  boxes.q = searchBox(
    "Filter calls",
    wanted.q,
    (words) => {
      wanted.q = words;
      again();
    },
    120,
  );
  const choice = (label, key, all) => {
    boxes[key] = h(
      "select",
      {
        "aria-label": label,
        onchange: (event) => {
          wanted[key] = event.target.value;
          again();
        },
      },
      h("option", { value: "" }, all),
    );
    return boxes[key];
  };
  const options = (key, words) => {
    const box = boxes[key],
      wantedWords = [...new Set([...words, wanted[key]].filter(Boolean))].sort(),
      signature = wantedWords.join("\n");
    if (box.dataset.words === signature || document.activeElement === box) return;
    box.dataset.words = signature;
    clear(
      box,
      box.firstChild,
      wantedWords.map((word) => h("option", { value: word, selected: word === wanted[key] }, word)),
    );
    box.value = wanted[key];
  };
  const fillOptions = () => {
    const sets = {
      child: new Set(),
      subtool: new Set(),
      client: new Set(),
      kind: new Set(),
      outcome: new Set(["failed"]),
    };
    const add = (key, word) => {
      if (word && sets[key].size < MAX_OPTIONS) sets[key].add(word);
    };
    for (const call of known.calls) {
      add("child", call.child);
      add("kind", call.kind);
      add("outcome", call.outcome);
      add("client", call.client);
      if (!wanted.child || call.child === wanted.child) add("subtool", call.subtool);
    }
    for (const key of Object.keys(sets)) options(key, sets[key]);
  };
  const hold = h("button", { type: "button", "aria-pressed": "false", title: "p", onclick: () => toggle() }, "Pause");
  const toggle = () => {
    paused = !paused;
    held = 0;
    hold.setAttribute("aria-pressed", String(paused));
    hold.textContent = paused ? "Resume" : "Pause";
    if (!paused) again();
    else counted();
  };
  const back = h(
    "select",
    {
      "aria-label": "Time",
      onchange: () => {
        wanted.from = back.value ? String(Math.floor(now() - back.value * 60000)) : "";
        wanted.to = "";
        again();
      },
    },
    LOOK_BACK.map(([value, text]) => h("option", { value }, text)),
  );
  clear(
    view,
    head_("list", [hold]),
    h(
      "div",
      { class: "tools" },
      boxes.q,
      choice("Client", "client", "every client"),
      choice("Child", "child", "every child"),
      choice("Subtool", "subtool", "every subtool"),
      choice("Kind", "kind", "every kind"),
      choice("Outcome", "outcome", "every outcome"),
      back,
      chips,
      count,
    ),
    h("div", { class: "card full calls" }, list.outer),
  );
  fillOptions();
  again();
  if (opened) {
    list.select(opened);
    opened = 0;
  }
  const drawFresh = throttle(() => {
    list.set(items, !older && list.ended);
    counted();
  });
  const key = (event) => {
    if (event.detail === "p") toggle();
  };
  view.addEventListener("key", key);
  const slow = setInterval(() => {
    if (!document.hidden) fillOptions();
  }, 3000);
  const end = on("calls", (fresh) => {
    if (fresh === null) return again(); // after a restart, other calls have these numbers
    if (paused) {
      held += fresh.filter(match).length;
      return counted();
    }
    const newest = items.length ? items[0].seq : 0,
      found = fresh.filter((call) => call.seq > newest && match(call)).reverse();
    if (!found.length) return;
    items = [...found, ...items];
    if (items.length > 12000) {
      items.length = 10000;
    }
    drawFresh();
  });
  return () => {
    turn++;
    end();
    clearInterval(slow);
    view.removeEventListener("key", key);
  };
}

function waterfallTab(view, route) {
  let to = Number(route.query.to) || 0,
    seconds = Number(route.query.seconds) || 60,
    child = route.query.child || "",
    turn = 0;
  const box = h("div", { class: "waterfall card flush" }),
    count = h("span", { class: "dim", role: "status" }),
    live = () => !to;
  const children = [...known.children.values()].map((row) => row.child).sort();
  const moved = () => {
    replace("calls", ["waterfall"], { to: to || "", seconds: seconds === 60 ? "" : seconds, child });
    look();
  };
  const step = (by) => {
    to = Math.min(now(), (to || now()) + by * seconds * 1000);
    if (to >= now() - 1000) to = 0;
    moved();
  };
  const size = h(
    "select",
    {
      "aria-label": "Length",
      onchange: () => {
        seconds = Number(size.value);
        moved();
      },
    },
    [
      [10, "10 seconds"],
      [30, "30 seconds"],
      [60, "1 minute"],
      [300, "5 minutes"],
      [600, "10 minutes"],
    ].map(([each, text]) => h("option", { value: each, selected: each === seconds }, text)),
  );
  const pick = h("input", {
    type: "datetime-local",
    step: 1,
    "aria-label": "Ends at",
    onchange: () => {
      to = new Date(pick.value).getTime() || 0;
      moved();
    },
  });
  const which = h(
    "select",
    {
      "aria-label": "Child",
      onchange: () => {
        child = which.value;
        moved();
      },
    },
    h("option", { value: "" }, "every child"),
    [...new Set(children)].map((word) => h("option", { value: word, selected: word === child }, word)),
  );
  clear(
    view,
    head_("waterfall", []),
    h(
      "div",
      { class: "tools" },
      size,
      which,
      h("button", { type: "button", "aria-label": "Earlier", onclick: () => step(-1) }, "←"),
      h("button", { type: "button", "aria-label": "Later", onclick: () => step(1) }, "→"),
      pick,
      h(
        "button",
        {
          type: "button",
          onclick: () => {
            to = 0;
            pick.value = "";
            moved();
          },
        },
        "Now",
      ),
      count,
    ),
    box,
  );
  const look = async () => {
    const mine = ++turn,
      end = to || now(),
      begin = end - seconds * 1000;
    let found;
    try {
      found = await get("/api/calls/waterfall", { from: Math.floor(begin), to: Math.ceil(end) });
    } catch (problem) {
      return void (mine === turn && failure(problem));
    }
    if (mine !== turn) return;
    const calls = found.calls
        .filter((call) => !child || call.child === child)
        .sort((a, b) => a.startedAt - b.startedAt),
      width = end - begin;
    const part = (at) => Math.max(0, Math.min(100, ((at - begin) / width) * 100));
    count.textContent = `${plural(calls.length, "call")}${found.left ? `, ${number(found.left)} left out` : ""}`;
    const marks = [0, 0.25, 0.5, 0.75, 1].map((each) => {
      const mark = h("span", {}, time(new Date(begin + each * width)));
      mark.style.left = `${4 + each * 92}%`;
      return mark;
    });
    clear(
      box,
      h("div", { class: "water-row water-axis" }, h("span", {}, "Call"), h("div", { class: "water-lane" }, marks)),
      calls.length
        ? calls.slice(0, 1000).map((call) => {
            const bar = h("i", { class: failed(call.outcome) ? "ink-2" : call.outcome === "ok" ? "ink-1" : "ink-6" }),
              left = part(call.startedAt),
              right = part(call.startedAt + Math.max(0, call.ms)),
              label = h("span", {}, ms(call.ms));
            bar.style.left = `${left}%`;
            bar.style.width = `max(3px, ${right - left}%)`;
            if (right > 88) label.style.right = `calc(${100 - left}% + .4rem)`;
            else label.style.left = `calc(${right}% + .5rem)`;
            return h(
              "a",
              {
                class: "water-row",
                href: href("calls", [call.seq]),
                "data-item": "",
                title: `${call.client || ""} ${call.outcome || ""}`,
              },
              h(
                "span",
                { class: "cut" },
                h("b", {}, call.child),
                " ",
                h("span", { class: "mono" }, call.subtool || ""),
              ),
              h(
                "div",
                { class: "water-lane" },
                bar,
                label,
                h("span", { class: "hidden" }, `${call.outcome}, ${clock(call.startedAt)}`),
              ),
            );
          })
        : h("p", { class: "empty pad" }, "No calls in this period."),
    );
  };
  look();
  const timer = setInterval(() => {
    if (live() && !document.hidden && !box.contains(document.activeElement)) look();
  }, 3000);
  return () => {
    turn++;
    clearInterval(timer);
  };
}

function latencyTab(view, route) {
  let query = "",
    found = { bounds: [], subtools: [] };
  const body = h("div"),
    count = h("span", { class: "dim", role: "status" });
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Filter subtools",
    "aria-label": "Filter subtools",
    oninput: () => {
      query = search.value.toLowerCase();
      draw();
    },
  });
  const draw = () => {
    const shown = found.subtools
      .filter(
        (row) =>
          (!route.query.child || row.child === route.query.child) &&
          `${row.child} ${row.subtool}`.toLowerCase().includes(query),
      )
      .sort((a, b) => b.p95 - a.p95);
    count.textContent = plural(shown.length, "subtool");
    const used = shown.flatMap((row) => row.bins.flatMap((count, place) => (count ? [place] : []))),
      low = Math.max(0, Math.min(...used, Infinity) - 1),
      high = Math.max(...used, 0) + 2;
    const range = shown.length
      ? `${ms(low ? found.bounds[low - 1] : 0)} to ${ms(found.bounds[Math.min(high, found.bounds.length) - 1])}, logarithmic`
      : "";
    clear(
      body,
      shown.length
        ? h(
            "div",
            { class: "scroll tall" },
            h(
              "table",
              { class: "grid-table" },
              h("caption", { class: "hidden" }, "Latency per subtool"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  [
                    ["Subtool"],
                    [`Distribution, ${range}`],
                    ["Calls", "num"],
                    ["Failed", "num"],
                    ["Median", "num"],
                    ["p95", "num"],
                    ["p99", "num"],
                    ["Slowest", "num"],
                  ].map(([word, kind]) => h("th", { scope: "col", class: `plain-th ${kind || ""}` }, word)),
                ),
              ),
              h(
                "tbody",
                {},
                shown.slice(0, 300).map((row) =>
                  h(
                    "tr",
                    { "data-item": "" },
                    h(
                      "td",
                      {},
                      h(
                        "a",
                        { href: href("calls", [], { child: row.child, subtool: row.subtool }) },
                        `${row.child} ${row.subtool}`,
                      ),
                    ),
                    h(
                      "td",
                      { "data-label": "Distribution" },
                      histogram(row.bins.slice(low, high), `${plural(row.calls, "call")} over ${range}`),
                    ),
                    h("td", { class: "num", "data-label": "Calls" }, number(row.calls)),
                    h(
                      "td",
                      { class: "num", "data-label": "Failed" },
                      row.errors ? h("span", { class: "bad-ink" }, percent(row.errors, row.calls)) : "0",
                    ),
                    [
                      ["Median", row.p50],
                      ["p95", row.p95],
                      ["p99", row.p99],
                      ["Slowest", row.max],
                    ].map(([word, value]) => h("td", { class: "num", "data-label": word }, ms(value))),
                  ),
                ),
              ),
            ),
          )
        : h("div", { class: "card" }, empty("Nothing measured yet.")),
    );
  };
  clear(view, head_("latency", []), h("div", { class: "tools" }, search, count), body);
  const look = () =>
    get("/api/calls/latency", { child: route.query.child })
      .then((data) => {
        found = data;
        draw();
      })
      .catch(failure);
  look();
  const timer = setInterval(() => {
    if (!document.hidden && !body.contains(document.activeElement)) look();
  }, 5000);
  return () => clearInterval(timer);
}

function errorsTab(view) {
  const body = h("div", { class: "stack" }),
    count = h("span", { class: "dim", role: "status" });
  let shown = "";
  clear(view, head_("errors", [count]), body);
  const look = async () => {
    let found;
    try {
      found = await get("/api/calls/errors");
    } catch (problem) {
      return void failure(problem);
    }
    const mark = JSON.stringify(found.groups.map((group) => [group.code, group.child, group.count]));
    if (mark === shown) return;
    shown = mark;
    count.textContent = plural(found.groups.length, "cause");
    clear(
      body,
      found.groups.length
        ? found.groups.map((group) =>
            h(
              "section",
              { class: "callout bad", "data-item": "" },
              h(
                "div",
                { class: "row wrapping" },
                h(
                  "h3",
                  { class: "wrap" },
                  h("a", { href: href("calls", [], { child: group.child, outcome: group.code }) }, group.code),
                ),
                h("a", { href: href("children", [group.child]) }, group.child),
                h("span", { class: "dim" }, plural(group.count, "call")),
                h(
                  "span",
                  { class: "dim small grow" },
                  group.firstAt === group.lastAt
                    ? clock(group.lastAt)
                    : `${clock(group.firstAt)} to ${clock(group.lastAt)}`,
                ),
              ),
              group.message && h("p", { class: "wrap" }, group.message),
              group.hint && h("p", { class: "remedy wrap" }, group.hint),
              group.subtools && group.subtools.length
                ? h("p", { class: "dim small wrap" }, "Subtools: ", group.subtools.slice(0, 20).join(", "))
                : "",
              group.seqs && group.seqs.length
                ? h(
                    "p",
                    { class: "small row wrapping" },
                    h("span", { class: "dim" }, "Latest:"),
                    group.seqs.map((seq) => h("a", { href: href("calls", [seq]) }, `call ${seq}`)),
                  )
                : "",
            ),
          )
        : h("div", { class: "card" }, empty("No call has failed.")),
    );
  };
  look();
  const timer = setInterval(() => {
    if (!document.hidden) look();
  }, 5000);
  return () => clearInterval(timer);
}
