// Live calls.

import { clear, clock, details, h, ms, outcome, plural } from "/static/dom.js";
import { List } from "/static/list.js";
import { known, on } from "/static/server.js";

export function callsView(view) {
  let query = "", paused = false, held = 0;
  const list = new List({
    label: "Calls", rowHeight: 34, key: (call) => call.seq, empty: "No calls yet. Finished calls appear here.",
    open: (call) => details(`${call.child} ${call.subtool || ""}`, [["Time", clock(call.at)], ["Kind", call.kind], ["Client", call.client], ["Token", call.who], ["Took", call.ms >= 0 && ms(call.ms)], ["Outcome", call.outcome]]),
    row: (call) => [h("span", { class: "dim num w-time" }, clock(call.at)), h("span", { class: "w-kind" }, call.kind), h("span", { class: "grow cut" }, h("b", {}, call.child), " ", call.subtool), h("span", { class: "cut w-who dim", title: [call.client, call.who].filter(Boolean).join(", token ") }, call.client || call.who), h("span", { class: "num w-ms" }, ms(call.ms)), h("span", { class: "w-out" }, outcome(call.outcome))],
  });
  const search = h("input", { type: "search", id: "search", placeholder: "Filter calls", "aria-label": "Filter calls", oninput: () => { query = search.value.toLowerCase(); draw(); } });
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => { paused = !paused; held = 0; hold.setAttribute("aria-pressed", String(paused)); hold.textContent = paused ? "Resume" : "Pause"; if (!paused) draw(); } }, "Pause");
  const count = h("span", { class: "dim", role: "status" });
  const draw = () => {
    const found = known.calls.filter((call) => !query || `${call.child} ${call.subtool} ${call.client || ""} ${call.who} ${call.outcome} ${call.kind}`.toLowerCase().includes(query)).reverse();
    list.set(found);
    count.textContent = plural(found.length, "call");
  };
  clear(view, h("h2", { class: "hidden" }, "Calls"), h("div", { class: "row tools" }, search, hold, count), h("div", { class: "card full" }, list.node));
  draw();
  const end = on("calls", (fresh) => {
    if (paused) { held += fresh.length; count.textContent = `${plural(held, "call")} held`; } else draw();
  });
  return end;
}
