// The overview and the suites: health, savings, and actions on children.

import { bars, line, narrow, traffic } from "/static/chart.js";
import { ask, badge, clear, clock, compact, h, ms, notice, number, outcome, plural, span, state } from "/static/dom.js";
import { get, known, name, on, post } from "/static/server.js";

const ILL = new Set(["unhealthy", "quarantined", "absent"]);
const total = (all, key) => all.reduce((sum, row) => sum + (row[key] || 0), 0);
const rows = () => [...known.children.values()];
const STRETCHES = [[15, "15 minutes"], [60, "1 hour"], [360, "6 hours"], [1440, "1 day"], [0, "all"]];
const now = () => Date.now() - (known.skew || 0);

function tile(label, value, note, kind) {
  return h("div", { class: `tile ${kind || ""}` }, h("dt", {}, label), h("dd", {}, value), note && h("dd", { class: "note" }, note));
}

export function overview(view, go) {
  const tiles = h("dl", { class: "tiles" }), troubles = h("div"), calls = h("div"), chart = h("div"), suites = h("div"), latest = h("div");
  const stretch = h("select", { "aria-label": "Which time", class: "small", onchange: () => drawTraffic() }, STRETCHES.map(([value, text]) => h("option", { value, selected: value === 60 }, text)));
  clear(view,
    h("h2", { class: "hidden" }, "Overview"), tiles,
    h("div", { class: "columns" },
      h("div", {},
        h("section", { class: "card" }, h("div", { class: "row" }, h("h3", { class: "grow" }, "Calls"), stretch), calls),
        h("section", { class: "card" }, h("h3", {}, "Tokens saved"), chart, suites)),
      h("div", {},
        h("section", { class: "card first" }, h("h3", {}, "Needs attention"), troubles),
        h("section", { class: "card last" }, h("h3", {}, "Latest calls"), latest))));
  let perSuite = [], waiting = null, orders = [];

  const drawTiles = () => {
    const all = rows(), about = known.overview;
    const ill = all.filter((row) => ILL.has(row.health)).length, running = all.filter((row) => row.started).length;
    clear(tiles,
      tile("Suites", number(all.length), `${running} running${about.mode === "governed" ? ", governed" : ""}`, ""),
      tile("In trouble", number(ill), ill ? "see below" : "all well", ill ? "bad" : "good"),
      tile("Calls", compact(total(all, "calls")), `${compact(total(all, "errors"))} failed, ${total(all, "inFlight")} in flight`),
      tile("Tokens saved", compact(known.points.length ? known.points[known.points.length - 1][1] : 0), `${plural(about.hostsServed, "host")} served`),
      tile("Hosts here", number(about.sessions), `up ${span(now() - about.startedAt)}`),
      about.mail && tile("Mail waiting", waiting === null ? "…" : number(waiting), "messages in inboxes"));
  };
  const drawTroubles = () => {
    const found = rows().filter((row) => ILL.has(row.health) || row.drift);
    const items = found.slice(0, 30).map((row) => h("li", {},
      h("button", { type: "button", class: "link", onclick: () => go("suites", row.id) }, row.suite), " ",
      row.drift ? badge(`${row.drift} drifted`, "warn") : state(row.health),
      row.trouble && h("p", { class: "wrap" }, row.trouble.message),
      row.trouble && row.trouble.hint && h("p", { class: "remedy wrap" }, row.trouble.hint),
      row.drift && h("p", { class: "remedy" }, "Review the differences, then approve them.")));
    for (const order of orders) {
      items.unshift(h("li", {}, h("button", { type: "button", class: "link", onclick: () => go("mail", `${order.to}/${order.id}`) }, `execute for ${order.to}`), " ", badge("waits", "warn"),
        h("p", { class: "wrap" }, `${order.from}: ${order.excerpt}`)));
    }
    // The row of a child that is not approved says so already.
    const shown = found.map((row) => (row.trouble ? row.trouble.message : "")).filter(Boolean);
    for (const warning of known.overview.warnings.filter((text) => !found.some((row) => row.state === "absent" && text.includes(`'${row.child}' is not approved`)) && !shown.includes(text))) items.push(h("li", {}, badge("config", "warn"), h("p", { class: "wrap" }, warning)));
    for (const [word, problem] of [["audit", known.overview.auditTrouble], ["off", known.overview.disabled]]) {
      if (problem) items.unshift(h("li", {}, badge(word, "bad"), h("p", { class: "wrap" }, problem.message), problem.hint && h("p", { class: "remedy wrap" }, problem.hint)));
    }
    if (!known.children.size) items.push(h("li", {}, h("p", {}, "There are no suites yet."), h("p", { class: "remedy" }, "Bring some with ", h("code", {}, "switchboard init"), " or ", h("code", {}, "switchboard add"), ".")));
    clear(troubles, items.length ? h("ul", { class: "plain" }, items) : h("p", { class: "empty" }, "Nothing. All is well."));
  };
  const drawTraffic = () => {
    const begin = Math.max(known.overview.startedAt, stretch.value === "0" ? 0 : now() - stretch.value * 60000);
    const seen = known.history.some(([at, seconds]) => at + seconds * 1000 > begin);
    clear(calls, seen ? traffic(known.history, begin, Math.max(now(), begin + 60000)) : h("p", { class: "empty" }, "No calls in this time."));
  };
  const drawSavings = () => clear(chart, line(known.points, now()));
  const drawCalls = () => {
    const last = known.calls.slice(-8).reverse();
    clear(latest, last.length ? h("ul", { class: "plain tight" }, last.map((call) => h("li", { class: "row" }, h("span", { class: "dim num small" }, clock(call.at)), h("span", { class: "grow cut" }, `${call.child} · ${call.subtool || call.kind}`), h("span", { class: "num dim" }, ms(call.ms)), outcome(call.outcome)))) : h("p", { class: "empty" }, "None yet."));
  };
  const fetchSavings = async () => {
    const savings = await get("/api/savings");
    known.points = savings.points;
    perSuite = savings.suites;
    clear(suites, perSuite.length ? [h("h4", {}, "For each host, by suite"), bars(perSuite)] : h("p", { class: "empty" }, "Nothing measured yet: savings are known once a child has run."));
    drawSavings();
    drawTiles();
  };
  const fetchMail = async () => {
    if (!known.overview.mail) return;
    const [about, waitingOrders] = await Promise.all([get("/api/mail/agents"), get("/api/mail/messages", { place: "inbox", action: "execute", limit: 10 })]);
    waiting = about.counts.inbox;
    orders = waitingOrders.messages.filter((order) => order.from !== known.overview.sender);
    drawTiles();
    drawTroubles();
  };
  drawTiles(); drawTroubles(); drawTraffic(); drawSavings(); drawCalls();
  fetchSavings().catch(() => {});
  fetchMail().catch(() => {});
  const timer = setInterval(() => { drawTiles(); drawTraffic(); }, 5000);
  const turned = () => { drawTraffic(); drawSavings(); };
  narrow.addEventListener("change", turned);
  const ends = [on("children", () => { drawTiles(); drawTroubles(); }), on("server", drawTiles), on("calls", drawCalls), on("history", drawTraffic), on("savings", () => fetchSavings().catch(() => {})), on("mail", () => fetchMail().catch(() => {}))];
  return () => { clearInterval(timer); narrow.removeEventListener("change", turned); ends.forEach((end) => end()); };
}

const COLUMNS = [
  ["suite", "Suite", (row) => h("button", { type: "button", class: "link" }, row.suite), (row) => row.suite],
  ["health", "Health", (row) => [state(row.health), row.drift ? badge(`${row.drift} drifted`, "warn") : ""], (row) => row.health],
  ["state", "State", (row) => row.state, (row) => row.state],
  ["up", "Uptime", (row) => (row.startedAt ? span(now() - row.startedAt) : "–"), (row) => -(row.startedAt || Infinity)],
  ["calls", "Calls", (row) => [number(row.calls || 0), row.inFlight ? h("span", { class: "dim" }, ` +${row.inFlight}`) : ""], (row) => -(row.calls || 0), "num"],
  ["errors", "Errors", (row) => (row.errors ? h("span", { class: "bad-ink" }, number(row.errors)) : row.calls ? "0" : "–"), (row) => -(row.errors || 0), "num"],
  ["p50", "Median", (row) => ms(row.p50), (row) => -(row.p50 ?? -1), "num"],
  ["p95", "p95", (row) => ms(row.p95), (row) => -(row.p95 ?? -1), "num"],
  ["tools", "Subtools", (row) => number(row.subtools), (row) => -(row.subtools || 0), "num"],
  ["saved", "Saved", (row) => (row.tokensSaved ? compact(row.tokensSaved) : "–"), (row) => -(row.tokensSaved || 0), "num"],
];

export function suitesView(view, go, chosen) {
  let sort = "suite", down = false, query = "", open = chosen || "";
  const search = h("input", { type: "search", id: "search", placeholder: "Filter suites", "aria-label": "Filter suites", oninput: () => { query = search.value.toLowerCase(); draw(); } });
  const count = h("span", { class: "dim", role: "status" });
  const head = h("tr"), body = h("tbody"), aside = h("aside", { class: "card detail", "aria-label": "Suite", hidden: true });
  clear(view,
    h("h2", { class: "hidden" }, "Suites"),
    h("div", { class: "row tools" }, search, count),
    h("div", { class: "split" }, h("div", { class: "scroll" }, h("table", { class: "grid-table" }, h("thead", {}, head), body)), aside));

  const draw = () => {
    const column = COLUMNS.find(([id]) => id === sort);
    const found = rows().filter((row) => !query || `${row.suite} ${row.child} ${row.state} ${row.health} ${row.description || ""}`.toLowerCase().includes(query));
    found.sort((a, b) => { const x = column[3](a), y = column[3](b); return (x < y ? -1 : x > y ? 1 : a.id < b.id ? -1 : 1) * (down ? -1 : 1); });
    clear(head, COLUMNS.map(([id, title, , , kind]) => h("th", { scope: "col", class: kind, "aria-sort": id === sort ? (down ? "descending" : "ascending") : "none" },
      h("button", { type: "button", class: "sort", onclick: () => { down = id === sort && !down; sort = id; draw(); } }, title, id === sort ? (down ? " ↓" : " ↑") : ""))));
    const held = document.activeElement && body.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.id : null;
    clear(body, found.map((row) => h("tr", { "data-id": row.id, class: row.id === open ? "chosen" : "", onclick: () => show(row.id) }, COLUMNS.map(([, title, cell, , kind]) => h("td", { class: kind, "data-label": title }, cell(row))))));
    if (held !== null) for (const row of body.children) if (row.dataset.id === held) row.querySelector("button").focus();
    if (!found.length) clear(body, h("tr", { class: "none" }, h("td", { colSpan: COLUMNS.length }, known.children.size ? "No such suite." : "There are no suites yet.")));
    count.textContent = found.length === known.children.size ? plural(found.length, "suite") : `${found.length} of ${known.children.size}`;
  };
  const show = async (id) => {
    open = id;
    history.replaceState(null, "", `#suites/${name(id)}`);
    draw();
    await detail(aside, id, () => { open = ""; aside.hidden = true; history.replaceState(null, "", "#suites"); draw(); });
  };
  draw();
  if (open) show(open);
  let seen = "";
  const redraw = () => {
    draw();
    const row = known.children.get(open), mark = JSON.stringify(row || {});
    if (open && !aside.hidden && mark !== seen && !aside.querySelector(":focus")) { seen = mark; show(open); }
  };
  const timer = setInterval(draw, 15000);
  const end = on("children", redraw);
  const escape = (event) => { if (event.key === "Escape" && open && !document.querySelector("dialog[open]")) { open = ""; aside.hidden = true; draw(); } };
  document.addEventListener("keydown", escape);
  return () => { clearInterval(timer); end(); document.removeEventListener("keydown", escape); };
}

async function act(id, verb, body) {
  try {
    await post(`/api/children/${name(id)}/${verb}`, body);
    notice({ start: "Started.", stop: "Stopped.", restart: "Restarted.", approve: "Approved and locked." }[verb], "good");
  } catch (problem) { notice([problem.message, problem.hint].filter(Boolean).join(" ")); }
}

async function detail(aside, id, close) {
  const row = known.children.get(id);
  let child = row && row.state === "absent" ? { ...row, driftChanges: [] } : null;
  try { child = child || await get(`/api/children/${name(id)}`); } catch (problem) { aside.hidden = true; return void notice(problem.message); }
  const may = known.overview.mayAct && child.kind !== "builtin" && child.state !== "absent";
  const again = () => detail(aside, id, close);
  const button = (verb, label, kind) => h("button", { type: "button", class: kind, onclick: async (event) => { event.target.disabled = true; await act(id, verb); await again(); } }, label);
  const trouble = child.trouble;
  const drifted = child.driftChanges.length > 0;
  const weight = child.weight;
  clear(aside,
    h("div", { class: "row" }, h("h3", { class: "grow cut", tabIndex: -1 }, child.suite), h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: close }, "✕")),
    h("p", { class: "dim wrap" }, child.description),
    may && h("div", { class: "row" }, child.started ? button("restart", "Restart") : button("start", "Start", "main"), child.started && button("stop", "Stop")),
    trouble && h("section", { class: "callout bad" }, h("h4", {}, trouble.code), h("p", { class: "wrap" }, trouble.message), trouble.hint && h("p", { class: "remedy wrap" }, trouble.hint), trouble.stderr && h("pre", { tabIndex: 0, "aria-label": "Last words on stderr" }, trouble.stderr.join("\n"))),
    drifted && h("section", { class: "callout warn" }, h("h4", {}, `${plural(child.driftChanges.length, "difference")} from the lock`),
      h("ul", { class: "changes" }, child.driftChanges.map((change) => h("li", { class: "wrap" }, change.tool && h("code", {}, change.tool), " ", change.text))),
      may ? h("button", { type: "button", class: "main", onclick: async () => {
        const sure = await ask("Approve the drift?", `${child.child} is then locked to what it offers now.`, "Approve");
        if (sure) { await act(id, "approve", { mark: child.driftMark }); await again(); }
      } }, "Approve") : h("p", { class: "remedy" }, `switchboard lock --accept ${child.child}`)),
    h("dl", { class: "facts" },
      h("dt", {}, "Health"), h("dd", {}, state(child.health), " ", child.state === child.health ? "" : child.state),
      child.pid ? [h("dt", {}, "Process"), h("dd", {}, String(child.pid), child.startedAt ? `, up ${span(now() - child.startedAt)}` : "")] : "",
      h("dt", {}, "Calls"), h("dd", {}, number(child.calls || 0), child.errors ? `, ${plural(child.errors, "error")}` : "", child.p50 !== undefined ? `, median ${ms(child.p50)}, p95 ${ms(child.p95)}` : ""),
      weight ? [h("dt", {}, "Tokens"), h("dd", {}, `${number(weight.flat)} listed flat, ${number(weight.suite)} as a suite`)] : "",
      child.command ? [h("dt", {}, "Runs"), h("dd", { class: "wrap" }, h("code", {}, child.command))] : "",
      child.source ? [h("dt", {}, "From"), h("dd", { class: "wrap" }, child.source)] : ""),
    h("h4", {}, child.subtoolList && child.subtoolList.length ? plural(child.subtoolList.length, "subtool") : "No subtools known yet"),
    h("ul", { class: "plain subtools" }, (child.subtoolList || []).slice(0, 200).map((tool) => h("li", {}, h("code", { class: "wrap" }, tool.name), h("p", { class: "dim wrap" }, tool.summary)))));
  aside.hidden = false;
  if (matchMedia("(max-width: 1100px)").matches) aside.querySelector("h3").focus();
}
