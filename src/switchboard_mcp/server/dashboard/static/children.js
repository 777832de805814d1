// Children: a table of all of them. The page of one is in child.js.

import { childView } from "/static/child.js";
import { clear, compact, h, ms, number, plural, span, throttle } from "/static/dom.js";
import { go, href, replace } from "/static/router.js";
import { known, now, on, rows } from "/static/server.js";
import { Table } from "/static/table.js";
import { badge, head, state } from "/static/ui.js";

const COLUMNS = [
  ["suite", "Suite", (row) => row.suite, (row) => row.suite],
  [
    "health",
    "Health",
    (row) => [
      state(row.health),
      row.lockTrouble ? [" ", badge("lock", "bad")] : row.drift ? [" ", badge(`${row.drift} drifted`, "warn")] : "",
    ],
    (row) => row.health,
  ],
  ["state", "State", (row) => row.state, (row) => row.state, "optional"],
  [
    "up",
    "Uptime",
    (row) => (row.startedAt ? span(now() - row.startedAt) : "–"),
    (row) => -(row.startedAt || Infinity),
    "num",
  ],
  [
    "calls",
    "Calls",
    (row) => [number(row.calls || 0), row.inFlight ? h("span", { class: "dim" }, ` +${row.inFlight}`) : ""],
    (row) => -(row.calls || 0),
    "num",
  ],
  [
    "errors",
    "Errors",
    (row) => (row.errors ? h("span", { class: "bad-ink" }, number(row.errors)) : row.calls ? "0" : "–"),
    (row) => -(row.errors || 0),
    "num",
  ],
  ["p50", "Median", (row) => ms(row.p50), (row) => -(row.p50 ?? -1), "num"],
  ["p95", "p95", (row) => ms(row.p95), (row) => -(row.p95 ?? -1), "num"],
  ["tools", "Subtools", (row) => number(row.subtools), (row) => -(row.subtools || 0), "num optional"],
  [
    "saved",
    "Saved",
    (row) => (row.tokensSaved ? compact(row.tokensSaved) : "–"),
    (row) => -(row.tokensSaved || 0),
    "num optional",
  ],
];

export function childrenView(view, route, title) {
  let leave = () => {};
  const draw = (next) => {
    if (next.parts[0] && leave.update && leave.update(next)) return;
    leave();
    leave = next.parts[0] ? childView(view, next, title) : listOf(view, next, title);
  };
  const up = () => {
    if (location.hash.includes("/")) go("children");
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

function listOf(view, route, title) {
  let query = route.query.q || "",
    health = route.query.health || "";
  title("Children");
  const search = h("input", {
    type: "search",
    id: "search",
    value: query,
    placeholder: "Filter children",
    "aria-label": "Filter children",
    oninput: () => {
      query = search.value;
      changed();
    },
  });
  const kinds = h(
    "select",
    {
      "aria-label": "Health",
      onchange: () => {
        health = kinds.value;
        changed();
      },
    },
    [
      ["", "every health"],
      ["healthy", "healthy"],
      ["unhealthy", "unhealthy"],
      ["quarantined", "quarantined"],
      ["absent", "not approved"],
      ["disabled", "disabled"],
      ["untried", "untried"],
      ["drifted", "drifted"],
    ].map(([value, text]) => h("option", { value, selected: value === health }, text)),
  );
  const count = h("span", { class: "dim", role: "status" });
  const table = new Table({
    label: "Children",
    columns: COLUMNS,
    to: (row) => href("children", [row.id]),
    empty: known.children.size
      ? "No such child."
      : "There are no children yet. Add some with `switchboard init` or `switchboard add NAME -- CMD`.",
  });
  const changed = () => {
    replace("children", [], { q: query, health });
    draw();
  };
  let all = true;
  const draw = throttle(() => {
    const words = query.toLowerCase();
    const found = rows().filter(
      (row) =>
        (!words ||
          `${row.suite} ${row.child} ${row.state} ${row.health} ${row.description || ""}`
            .toLowerCase()
            .includes(words)) &&
        (!health || (health === "drifted" ? row.drift || row.lockTrouble : row.health === health)),
    );
    table.set(found, all);
    all = false;
    count.textContent =
      found.length === known.children.size
        ? plural(found.length, "child", "children")
        : `${found.length} of ${known.children.size}`;
  });
  clear(
    view,
    head("Children", { note: "The MCP servers behind this one, a suite each." }),
    h("div", { class: "tools" }, search, kinds, count),
    table.node,
  );
  draw();
  const timer = setInterval(() => {
      all = true;
      draw();
    }, 15000),
    end = on("children", draw);
  return () => {
    clearInterval(timer);
    end();
  };
}
