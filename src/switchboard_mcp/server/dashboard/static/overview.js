// The overview: one card each for calls, tokens saved, problems and the latest calls, below a row of figures.

import { bars, line, narrow, traffic } from "/static/chart.js";
import { badge, clear, clock, compact, h, ms, number, outcome, plural, span, state } from "/static/dom.js";
import { get, known, now, on, rows } from "/static/server.js";

const ILL = new Set(["unhealthy", "quarantined", "absent"]);
const total = (all, key) => all.reduce((sum, row) => sum + (row[key] || 0), 0);
const mib = (bytes) => `${number(Math.round(bytes / 1048576))} MiB`;
const STRETCHES = [[15, "15 minutes"], [60, "1 hour"], [360, "6 hours"], [1440, "1 day"], [0, "all"]];

function tile(label, value, note, kind) {
  return h("div", { class: `tile ${kind || ""}` }, h("dt", {}, label), h("dd", {}, value), note && h("dd", { class: "note" }, note));
}

// Tokens of results that did not reach a model, beside those of the tool lists.
const ofResults = (counts) => counts.changed ? ` Of results, ${number(counts.saved || 0)} more tokens were kept out of the context of models${counts.reads ? `, and ${plural(counts.reads, "read")} of the rest cost ${number(counts.readTokens)}` : ""}.` : "";

export function overviewView(view, go) {
  const tiles = h("dl", { class: "tiles" }), troubles = h("div"), calls = h("div"), chart = h("div"), base = h("p", { class: "dim small" }), suites = h("div"), latest = h("div"), hosts = h("div");
  const stretch = h("select", { "aria-label": "Time range", class: "small", onchange: () => drawTraffic() }, STRETCHES.map(([value, text]) => h("option", { value, selected: value === 60 }, text)));
  clear(view,
    h("h2", { class: "hidden" }, "Overview"), tiles,
    h("div", { class: "columns" },
      h("div", {},
        h("section", { class: "card" }, h("div", { class: "row" }, h("h3", { class: "grow" }, "Calls"), stretch), calls),
        h("section", { class: "card" }, h("h3", {}, "Tokens saved"), chart, base, suites)),
      h("div", {},
        h("section", { class: "card first" }, h("h3", {}, "Needs attention"), troubles),
        h("section", { class: "card" }, h("h3", {}, "Sessions"), hosts),
        h("section", { class: "card last" }, h("h3", {}, "Latest calls"), latest))));
  let perSuite = [], waiting = null, orders = [], memory = null;

  const drawTiles = () => {
    const all = rows().filter((row) => row.state !== "disabled"), about = known.overview, off = known.children.size - all.length;
    const ill = all.filter((row) => ILL.has(row.health)).length, running = all.filter((row) => row.started).length;
    clear(tiles,
      tile("Suites", number(all.length), `${running} running${off ? `, ${off} disabled` : ""}${about.mode === "governed" ? ", governed" : ""}`, ""),
      tile("Failing", number(ill), ill ? "see below" : "all well", ill ? "bad" : "good"),
      tile("Calls", compact(total(all, "calls")), `${compact(total(all, "errors"))} failed, ${total(all, "inFlight")} in flight`),
      tile("Tokens saved", compact(known.points.length ? known.points[known.points.length - 1][1] : 0), `in ${plural(known.savings.sessions, "session")} with calls`),
      tile("Hosts here", number(about.sessions), `up ${span(now() - about.startedAt)}`),
      memory && memory.total > 0 && tile("Memory", mib(memory.total), memory.saved ? `at least ${mib(memory.saved)} saved` : "with all children"),
      about.mail && tile("Mail waiting", waiting === null ? "…" : number(waiting), "messages in inboxes"));
  };
  const drawHosts = () => {
    const all = known.overview.sessionList || [], more = known.overview.sessions - all.length;
    clear(hosts, all.length ? h("ul", { class: "plain tight" }, all.map((one) => h("li", { class: "row" },
      h("span", { class: "grow cut" }, one.client || "?", h("span", { class: "dim" }, ` ${[one.version, one.profile && `profile ${one.profile}`, one.pid && `process ${one.pid}`].filter(Boolean).join(" · ")}`)),
      h("span", { class: "num dim" }, `${plural(one.calls, "call")}${one.inFlight ? ` +${one.inFlight}` : ""}`),
      h("span", { class: "num dim" }, span(now() - one.startedAt))))) : h("p", { class: "empty" }, "None at the moment."),
      more > 0 && h("p", { class: "dim small" }, `and ${number(more)} more`),
      memory && memory.saved > 0 && h("p", { class: "dim small" }, `At least ${mib(memory.saved)} less memory than if each session had a process of its own of every child that it has used.`));
  };
  const drawTroubles = () => {
    const found = rows().filter((row) => ILL.has(row.health) || row.drift || row.lockTrouble);
    const items = found.slice(0, 30).map((row) => h("li", {},
      h("button", { type: "button", class: "link", onclick: () => go("suites", row.id) }, row.suite), " ",
      row.lockTrouble ? badge("lock", "bad") : row.drift ? badge(`${row.drift} drifted`, "warn") : state(row.health),
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
    if (!known.children.size) items.push(h("li", {}, h("p", {}, "There are no suites yet."), h("p", { class: "remedy" }, "Add some with ", h("code", {}, "switchboard init"), " or ", h("code", {}, "switchboard add NAME -- CMD"), ".")));
    const waiting = known.overview.approvals;
    if (waiting) {
      items.unshift(h("li", {}, h("button", { type: "button", class: "link", onclick: () => go("approvals") }, plural(waiting, "call")), " ", badge("waits", "warn"),
        h("p", { class: "wrap" }, "A rule of the gate asks for your decision.")));
    }
    clear(troubles, items.length ? h("ul", { class: "plain" }, items) : h("p", { class: "empty" }, "Nothing. All is well."));
  };
  const drawTraffic = () => {
    const begin = Math.max(known.overview.startedAt, stretch.value === "0" ? 0 : now() - stretch.value * 60000);
    const seen = known.history.some(([at, seconds]) => at + seconds * 1000 > begin);
    clear(calls, seen ? traffic(known.history, begin, Math.max(now(), begin + 60000)) : h("p", { class: "empty" }, "No calls in this period."));
  };
  const drawSavings = () => clear(chart, line(known.points, now()));
  const drawCalls = () => {
    const last = known.calls.slice(-8).reverse();
    clear(latest, last.length ? h("ul", { class: "plain tight" }, last.map((call) => h("li", { class: "row" }, h("span", { class: "dim num small" }, clock(call.at)), h("span", { class: "grow cut" }, `${call.child} · ${call.subtool || call.kind}`, h("span", { class: "dim" }, ` ${call.client || call.who || ""}`)), h("span", { class: "num dim" }, ms(call.ms)), outcome(call.outcome)))) : h("p", { class: "empty" }, "None yet."));
  };
  const fetchSavings = async () => {
    const savings = await get("/api/savings");
    known.points = savings.points;
    known.savings = savings;
    perSuite = savings.suites;
    clear(suites, perSuite.length ? [h("h4", {}, "In each session, by suite, before introspect"), bars(perSuite)] : h("p", { class: "empty" }, "Nothing measured yet: savings are known once a child has run."));
    clear(base, `Compared with listing every tool of these suites in each session that called something (${number(savings.sessions)}), less ${plural(savings.introspections, "introspect call")}. Estimated.${ofResults(savings.results)}`);
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
  const fetchMemory = async () => { memory = await get("/api/memory"); drawTiles(); drawHosts(); };
  drawTiles(); drawHosts(); drawTroubles(); drawTraffic(); drawSavings(); drawCalls();
  fetchMemory().catch(() => {});
  fetchSavings().catch(() => {});
  fetchMail().catch(() => {});
  const timer = setInterval(() => { drawTiles(); drawHosts(); drawTraffic(); }, 5000);
  const measuring = setInterval(() => fetchMemory().catch(() => {}), 15000);
  const turned = () => { drawTraffic(); drawSavings(); };
  narrow.addEventListener("change", turned);
  const ends = [on("children", () => { drawTiles(); drawTroubles(); }), on("server", () => { drawTiles(); drawHosts(); }), on("calls", drawCalls), on("history", drawTraffic), on("savings", () => fetchSavings().catch(() => {})), on("mail", () => fetchMail().catch(() => {}))];
  return () => { clearInterval(timer); clearInterval(measuring); narrow.removeEventListener("change", turned); ends.forEach((end) => end()); };
}
