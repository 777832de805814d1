// The audit log, newest first.

import { badge, clear, clock, details, h, notice, outcome, plural } from "/static/dom.js";
import { List } from "/static/list.js";
import { get, known } from "/static/server.js";

export function auditView(view) {
  if (!known.overview.audit) {
    clear(view, h("h2", { class: "hidden" }, "Audit"), h("div", { class: "card" }, h("p", { class: "empty" }, "The audit log is off. Turn it on with audit.enabled in the config.")));
    return () => {};
  }
  let query = "", kind = "", ended = "", next = 0, turn = 0;
  const list = new List({
    label: "Audit record", rowHeight: 34, key: (entry) => entry.seq, empty: "No such record.",
    open: (entry) => details(`${entry.child || ""} ${entry.subtool || ""}`.trim() || entry.kind, [["Time", clock(entry.at)], ["Kind", entry.kind], ["Token", entry.who], ["Took", entry.took && `at most ${entry.took}`], ["Outcome", entry.outcome]]),
    row: (entry) => [h("span", { class: "dim num w-time" }, clock(entry.at)), h("span", { class: "w-kind" }, entry.kind), h("span", { class: "grow cut" }, h("b", {}, entry.child || ""), " ", entry.subtool || ""), h("span", { class: "cut w-who dim" }, entry.who || ""), h("span", { class: "num w-ms dim" }, entry.took ? `≤ ${entry.took}` : ""), h("span", { class: "w-out" }, entry.outcome ? outcome(entry.outcome) : "")],
    more: async () => {
      const mine = turn;
      try {
        const page = await get("/api/audit", { before: next, q: query, kind, outcome: ended, limit: 200 });
        if (mine !== turn) return;
        next = page.next;
        list.set([...list.items, ...page.entries], !page.next);
        count.textContent = `${plural(list.items.length, "record")}${page.next ? ", more below" : ""}`;
      } catch (problem) { list.ended = true; notice(problem.message); }
    },
  });
  const again = () => { turn++; next = 0; list.items = []; list.ended = false; list.fetching = false; list.node.scrollTop = 0; list.draw(); };
  let typing = 0;
  const search = h("input", { type: "search", id: "search", placeholder: "Search the record", "aria-label": "Search the record", oninput: () => { clearTimeout(typing); typing = setTimeout(() => { query = search.value; again(); }, 250); } });
  const kinds = h("select", { "aria-label": "Kind of record", onchange: () => { kind = kinds.value; again(); } }, h("option", { value: "" }, "every kind"), ["call", "introspect", "decision", "child", "drift", "lock", "start", "stop", "restart", "send", "execute"].map((word) => h("option", { value: word }, word)));
  const ends = h("select", { "aria-label": "Outcome", onchange: () => { ended = ends.value; again(); } }, [["", "every outcome"], ["failed", "failed"]].map(([value, text]) => h("option", { value }, text)));
  const count = h("span", { class: "dim", role: "status" });
  clear(view, h("h2", { class: "hidden" }, "Audit"), h("div", { class: "row tools" }, search, kinds, ends, h("button", { type: "button", onclick: again }, "Newest"), count, badge("no arguments, no secrets", "")), h("div", { class: "card full" }, list.node));
  return () => { turn++; };
}
