// The suites: a table with a row per child, and the details of one with its actions.

import { ask, badge, clear, compact, h, ms, notice, number, plural, span, state } from "/static/dom.js";
import { get, known, name, now, on, post, rows } from "/static/server.js";

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
  const head = h("tr"), body = h("tbody", { onkeydown: (event) => move(event) }), aside = h("aside", { class: "card detail", "aria-label": "Suite", hidden: true });
  clear(view,
    h("h2", { class: "hidden" }, "Suites"),
    h("div", { class: "row tools" }, search, count),
    h("div", { class: "split" }, h("div", { class: "scroll" }, h("table", { class: "grid-table" }, h("thead", {}, head), body)), aside));

  const move = (event) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const names = [...body.querySelectorAll("button.link")];
    names[names.indexOf(document.activeElement) + step]?.focus();
  };
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
  const close = () => { open = ""; aside.hidden = true; history.replaceState(null, "", "#suites"); draw(); };
  const show = async (id) => {
    open = id;
    history.replaceState(null, "", `#suites/${name(id)}`);
    draw();
    await detail(aside, id, close);
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
  const escape = (event) => { if (event.key === "Escape" && open && !document.querySelector("dialog[open]")) close(); };
  document.addEventListener("keydown", escape);
  return () => { clearInterval(timer); end(); document.removeEventListener("keydown", escape); };
}

// As in: claude-code ×2, codex.
function users(child) {
  const counts = new Map();
  for (const { client } of child.users) counts.set(client || "?", (counts.get(client || "?") || 0) + 1);
  const names = [...counts].map(([client, count]) => (count > 1 ? `${client} ×${count}` : client));
  const more = child.userCount - child.users.length;
  return [...names, ...(more > 0 ? [`${more} more`] : [])].join(", ");
}

async function act(id, verb, body) {
  try {
    await post(`/api/children/${name(id)}/${verb}`, body);
    notice({ start: "Started.", stop: "Stopped.", restart: "Restarted.", approve: "Approved and locked." }[verb], "good");
  } catch (problem) { notice([problem.message, problem.hint].filter(Boolean).join(" ")); }
}

async function detail(aside, id, close) {
  const row = known.children.get(id);
  let child = row && (row.state === "absent" || row.state === "disabled") ? { ...row, driftChanges: [] } : null;
  try { child = child || await get(`/api/children/${name(id)}`); } catch (problem) { aside.hidden = true; return void notice(problem.message); }
  const may = known.overview.mayAct && child.kind !== "builtin" && child.state !== "absent" && child.state !== "disabled";
  const again = () => detail(aside, id, close);
  const button = (verb, label, kind) => h("button", { type: "button", class: kind, onclick: async (event) => { event.target.disabled = true; await act(id, verb); await again(); } }, label);
  const trouble = child.trouble;
  const drifted = child.driftChanges.length > 0;
  const weight = child.weight;
  clear(aside,
    h("div", { class: "row" }, h("h3", { class: "grow cut", tabIndex: -1 }, child.suite), h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: close }, "✕")),
    h("p", { class: "dim wrap" }, child.description),
    child.state === "disabled" && h("p", { class: "remedy wrap" }, "Hosts do not see it. Switch it on with ", h("code", {}, `switchboard enable ${child.child}`), "."),
    may && h("div", { class: "row" }, child.started ? button("restart", "Restart") : button("start", "Start", "main"), child.started && button("stop", "Stop")),
    trouble && h("section", { class: "callout bad" }, h("h4", {}, trouble.code), h("p", { class: "wrap" }, trouble.message), trouble.hint && h("p", { class: "remedy wrap" }, trouble.hint), trouble.stderr && h("pre", { tabIndex: 0, "aria-label": "Lines of stderr" }, trouble.stderr.join("\n"))),
    drifted && h("section", { class: "callout warn" }, h("h4", {}, `${plural(child.driftChanges.length, "difference")} from the lock`),
      h("ul", { class: "changes" }, child.driftChanges.map((change) => h("li", { class: "wrap" }, change.tool && h("code", {}, change.tool), " ", change.text))),
      may ? h("button", { type: "button", class: "main", onclick: async () => {
        const sure = await ask("Approve the drift?", `${child.child} is then locked to what it offers now.`, "Approve");
        if (sure) { await act(id, "approve", { mark: child.driftMark }); await again(); }
      } }, "Approve") : h("p", { class: "remedy" }, `switchboard lock --accept ${child.child}`)),
    child.sandboxDenied && h("section", { class: "callout warn" }, h("h4", {}, `Refused by its sandbox: ${number(child.sandboxDenied)}`),
      h("ul", { class: "changes" }, (child.sandboxRefusals || []).map((refusal) => h("li", { class: "wrap" }, refusal.message, refusal.count > 1 ? h("span", { class: "dim" }, ` ${number(refusal.count)} times`) : "")))),
    h("dl", { class: "facts" },
      h("dt", {}, "Health"), h("dd", {}, state(child.health), " ", child.state === child.health ? "" : child.state),
      child.pid ? [h("dt", {}, "Process"), h("dd", {}, String(child.pid), child.startedAt ? `, up ${span(now() - child.startedAt)}` : "")] : "",
      h("dt", {}, "Calls"), h("dd", {}, number(child.calls || 0), child.errors ? `, ${plural(child.errors, "error")}` : "", child.p50 !== undefined ? `, median ${ms(child.p50)}, p95 ${ms(child.p95)}` : ""),
      child.userCount ? [h("dt", {}, "Used by"), h("dd", { class: "wrap" }, users(child), child.perSession ? " (a process per session)" : "")] : "",
      weight ? [h("dt", {}, "Tokens"), h("dd", {}, `${number(weight.flat)} listed flat, ${number(weight.suite)} as a suite`)] : "",
      child.sandbox ? [h("dt", {}, "Sandbox"), h("dd", { class: "wrap" }, child.sandbox, child.sandboxBroken ? `, without ${child.sandboxBroken.join(" and ")}` : "")] : "",
      child.command ? [h("dt", {}, "Runs"), h("dd", { class: "wrap" }, h("code", {}, child.command))] : "",
      child.source ? [h("dt", {}, "From"), h("dd", { class: "wrap" }, child.source)] : ""),
    h("h4", {}, child.subtoolList && child.subtoolList.length ? plural(child.subtoolList.length, "subtool") : "No subtools known yet"),
    h("ul", { class: "plain subtools" }, (child.subtoolList || []).slice(0, 200).map((tool) => h("li", {}, h("code", { class: "wrap" }, tool.name), h("p", { class: "dim wrap" }, tool.summary)))));
  aside.hidden = false;
  if (matchMedia("(max-width: 1100px)").matches) aside.querySelector("h3").focus();
}
