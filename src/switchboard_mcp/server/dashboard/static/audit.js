// The audit log, newest first.

import { clear, clock, h, moment, plural } from "/static/dom.js";
import { List } from "/static/list.js";
import { href, replace } from "/static/router.js";
import { get, known } from "/static/server.js";
import { badge, details, empty, failure, filterBoxes, head, outcome } from "/static/ui.js";

const KINDS = [
  "call",
  "introspect",
  "decision",
  "child",
  "drift",
  "approval",
  "settings",
  "lock",
  "start",
  "stop",
  "restart",
  "enable",
  "disable",
  "gate",
  "program",
  "send",
  "execute",
];

// The log has durations such as `100ms`.
const spaced = (took) => took.replace(/(\d)([a-z])/, "$1 $2");

export function auditView(view, route) {
  if (!known.overview.audit) {
    clear(
      view,
      head("Audit"),
      h("div", { class: "card" }, empty("The audit log is off. Turn it on with audit.enabled in the config.")),
    );
    return () => {};
  }
  const wanted = { q: "", kind: "", outcome: "", child: "", ...route.query };
  let next = 0,
    turn = 0;
  const list = new List({
    label: "Audit record",
    rowHeight: 29,
    key: (entry) => entry.seq,
    empty: "No such record.",
    open: (entry) =>
      details(`${entry.child || ""} ${entry.subtool || ""}`.trim() || entry.kind, [
        ["Time", moment(entry.at)],
        ["Kind", entry.kind],
        ["Token", entry.who],
        [
          "Child",
          entry.child &&
            h(
              "a",
              { href: href("children", [entry.child]), onclick: (event) => event.target.closest("dialog").close() },
              entry.child,
            ),
        ],
        ["Subtool", entry.subtool],
        ["Took", entry.took && `at most ${spaced(entry.took)}`],
        ["Outcome", entry.outcome],
        ["Entry", entry.seq],
      ]),
    columns: [
      ["w-time", "Time", (entry) => clock(entry.at)],
      ["w-kind", "Kind", (entry) => entry.kind],
      ["w-child", "Child", (entry) => entry.child || ""],
      ["grow cut", "Subtool", (entry) => entry.subtool || ""],
      ["w-who", "Token", (entry) => entry.who || ""],
      ["w-ms dim", "Took", (entry) => (entry.took ? `≤ ${spaced(entry.took)}` : "")],
      ["w-out", "Outcome", (entry) => (entry.outcome ? outcome(entry.outcome) : "")],
    ],
    more: async () => {
      const mine = turn;
      try {
        const page = await get("/api/audit", { before: next, ...wanted, limit: 200 });
        if (mine !== turn) return;
        next = page.next;
        list.set([...list.items, ...page.entries], !page.next);
        count.textContent = `${plural(list.items.length, "record")}${page.next ? ", more below" : ""}`;
      } catch (problem) {
        list.ended = true;
        failure(problem);
      }
    },
  });
  const again = () => {
    turn++;
    next = 0;
    replace("audit", [], wanted);
    list.reset();
  };
  const { search, choice } = filterBoxes(wanted, again);
  const children = [...new Set([...known.children.values()].map((row) => row.child))].sort();
  const count = h("span", { class: "dim", role: "status" });
  clear(
    view,
    head("Audit", { note: "Who did what, in a chain that shows every change of it. No arguments, no secrets." }),
    h(
      "div",
      { class: "tools" },
      search("Search the record"),
      choice("Kind of record", "kind", [["", "every kind"], ...KINDS.map((word) => [word, word])]),
      choice("Child", "child", [["", "every child"], ...children.map((word) => [word, word])]),
      choice("Outcome", "outcome", [
        ["", "every outcome"],
        ["failed", "failed"],
      ]),
      h("button", { type: "button", onclick: again }, "Newest"),
      count,
      wanted.child && !children.includes(wanted.child) ? badge(wanted.child) : "",
    ),
    h("div", { class: "card full" }, list.outer),
  );
  list.draw();
  return () => {
    turn++;
  };
}
