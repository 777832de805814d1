// Sessions: which hosts are connected, what they used, and what suites and shared children saved them.

import { bytes, clear, compact, h, number, plural, span } from "/static/dom.js";
import { href } from "/static/router.js";
import { get, known, now, on } from "/static/server.js";
import { Table } from "/static/table.js";
import { badge, empty, facts, failure, head, panel } from "/static/ui.js";

const BASE_LINES = { listed: "every tool listed flat", name: "a host that loads tools by name" };
const saved = (row) => (row.saved ? row.saved.total : undefined);
const clientOf = (row) => row.title || row.client || "unnamed client";
const COLUMNS = [
  ["client", "Client", (row) => `${clientOf(row)} ${row.version || ""}`.trim(), (row) => clientOf(row).toLowerCase()],
  ["transport", "Transport", (row) => row.transport || "", (row) => row.transport || ""],
  ["protocol", "Protocol", (row) => row.protocol || "", (row) => row.protocol || "", "optional"],
  ["profile", "Profile", (row) => row.profile || "–", (row) => row.profile || "", "optional"],
  ["who", "Token", (row) => row.principal || "–", (row) => row.principal || "", "optional"],
  ["since", "Connected", (row) => span(now() - row.startedAt), (row) => -row.startedAt, "num"],
  [
    "calls",
    "Calls",
    (row) => h("span", {}, number(row.calls), row.inFlight ? h("span", { class: "dim" }, ` +${row.inFlight}`) : ""),
    (row) => -row.calls,
    "num",
  ],
  [
    "listed",
    "Listed",
    (row) => compact(row.tokens && row.tokens.listed),
    (row) => -((row.tokens && row.tokens.listed) || 0),
    "num",
  ],
  [
    "opened",
    "Opened",
    (row) => compact(row.tokens && row.tokens.opened),
    (row) => -((row.tokens && row.tokens.opened) || 0),
    "num optional",
  ],
  [
    "returned",
    "Returned",
    (row) => compact(row.tokens && row.tokens.returned),
    (row) => -((row.tokens && row.tokens.returned) || 0),
    "num optional",
  ],
  ["saved", "Saved", (row) => compact(saved(row)), (row) => -(saved(row) || 0), "num"],
];

// An older server knows sessions by their place in its list.
async function fetchSessions() {
  try {
    const [found, memory] = await Promise.all([get("/api/sessions"), get("/api/memory").catch(() => ({}))]);
    found.shared = (found.shared || []).map((row) => ({ ...row, bytesSaved: (memory.shared || {})[row.id] }));
    found.memorySaved = memory.saved;
    return found;
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    const list = known.overview.sessionList || [];
    return {
      sessions: list.map((row, place) => ({ id: `s${place + 1}`, ...row })),
      shared: [],
      total: known.overview.sessions,
    };
  }
}

export function sessionsView(view, route, title) {
  let found = { sessions: [], shared: [], total: 0 },
    query = "",
    open = route.parts[0] || "";
  const count = h("span", { class: "dim", role: "status" }),
    body = h("div", { class: "stack" });
  const table = new Table({
    label: "Sessions",
    columns: COLUMNS,
    to: (row) => href("sessions", [row.id]),
    sort: "since",
    empty: "No session is connected. A session appears when a host connects.",
  });
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Filter sessions",
    "aria-label": "Filter sessions",
    oninput: () => {
      query = search.value.toLowerCase();
      draw();
    },
  });
  const shared = h("div"),
    calls = h("a", {}, "Calls of this session");
  const draw = () => {
    if (open) return drawOne();
    const shown = found.sessions.filter(
      (row) =>
        !query ||
        `${row.client} ${row.title || ""} ${row.version} ${row.profile || ""} ${row.principal || ""} ${row.transport || ""} ${row.protocol || ""}`
          .toLowerCase()
          .includes(query),
    );
    table.set(shown);
    count.textContent =
      shown.length === found.total ? plural(shown.length, "session") : `${shown.length} of ${number(found.total)}`;
    drawShared();
  };
  const drawShared = () =>
    clear(
      shared,
      found.shared && found.shared.length
        ? panel(
            [
              h("h3", { class: "grow" }, "Children that sessions share"),
              found.memorySaved > 0 && badge(`${bytes(found.memorySaved)} saved`, "good"),
            ],
            { class: "flush" },
            h(
              "div",
              { class: "scroll bare" },
              h(
                "table",
                { class: "grid-table" },
                h(
                  "thead",
                  {},
                  h(
                    "tr",
                    {},
                    ["Child", "Sessions", "Memory saved"].map((word, place) =>
                      h("th", { scope: "col", class: place ? "num plain-th" : "plain-th" }, word),
                    ),
                  ),
                ),
                h(
                  "tbody",
                  {},
                  found.shared.map((row) =>
                    h(
                      "tr",
                      {},
                      h(
                        "td",
                        { "data-label": "Child" },
                        h("a", { href: href("children", [row.id || row.child]) }, row.child),
                      ),
                      h("td", { class: "num", "data-label": "Sessions" }, number(row.sessions)),
                      h("td", { class: "num", "data-label": "Memory saved" }, bytes(row.bytesSaved)),
                    ),
                  ),
                ),
              ),
            ),
            h(
              "p",
              { class: "dim small pad" },
              "One process serves all of these sessions. Saved is the memory of the processes that are not needed.",
            ),
          )
        : "",
    );
  const drawList = () => {
    title("Sessions");
    clear(
      view,
      head("Sessions", { note: "Hosts that are connected now, what they used, and what suites saved them." }),
      h("div", { class: "tools" }, search, count),
      h("div", { class: "stack" }, table.node, shared),
    );
    draw();
  };
  const drawOne = () => {
    const row = found.sessions.find((each) => each.id === open);
    if (!row) return void clear(body, empty("This session has ended, or there was none of that name."));
    title(clientOf(row));
    const heading = view.querySelector("h2");
    if (heading) heading.textContent = `${clientOf(row)} ${row.version || ""}`.trim();
    calls.href = href("calls", [], { session: row.id });
    const tokens = row.tokens || {},
      gain = row.saved;
    const figure = (label, value, note) =>
      h("div", { class: "tile" }, h("dt", {}, label), h("dd", {}, value), note && h("dd", { class: "note" }, note));
    clear(
      body,
      h(
        "dl",
        { class: "stats" },
        figure("Calls", number(row.calls), row.inFlight ? `${row.inFlight} in flight` : "none in flight"),
        figure("Tokens listed", compact(tokens.listed), "tool lists"),
        figure("Tokens opened", compact(tokens.opened), "introspect"),
        figure("Tokens returned", compact(tokens.returned), "results"),
        gain &&
          figure(
            "Tokens saved",
            compact(gain.total),
            BASE_LINES[gain.baselineIs] ? `against ${BASE_LINES[gain.baselineIs]}` : "",
          ),
      ),
      h(
        "div",
        { class: "halves" },
        panel(
          "Session",
          {},
          facts([
            ["Client", `${row.client || "unnamed"} ${row.version || ""}`],
            ["Session", row.id],
            ["Transport", row.transport],
            ["Protocol", row.protocol],
            ["Token", row.principal],
            ["Profile", row.profile],
            ["Process", row.pid || ""],
            ["Connected", `${span(now() - row.startedAt)} ago`],
          ]),
        ),
        gain &&
          panel(
            "What it saved",
            {},
            facts([
              ["Base line", `${number(gain.baseline)} tokens: ${BASE_LINES[gain.baselineIs] || gain.baselineIs}`],
              ["Tool lists", number(gain.tools)],
              ["Results", number(gain.results)],
              ["Together", h("b", {}, number(gain.total))],
            ]),
          ),
        panel(
          "Children it used",
          {},
          (row.children || []).length
            ? h(
                "div",
                { class: "row wrapping" },
                row.children.map((child) => h("a", { href: href("children", [child]) }, child)),
              )
            : empty("None yet."),
        ),
      ),
    );
  };
  const drawDetail = () => {
    clear(view, head("Session", { crumbs: [["Sessions", href("sessions")]], actions: [calls] }), body);
    drawOne();
  };
  const fetchAll = () =>
    fetchSessions()
      .then((data) => {
        found = data;
        draw();
      })
      .catch(failure);
  const up = () => {
    if (open) location.hash = href("sessions");
  };
  open ? drawDetail() : drawList();
  fetchAll();
  view.addEventListener("up", up);
  const timer = setInterval(() => {
    if (!document.hidden) fetchAll();
  }, 8000);
  let counted = known.overview.sessions;
  const end = on("server", () => {
    if (!document.hidden && counted !== known.overview.sessions) {
      counted = known.overview.sessions;
      fetchAll();
    }
  });
  return {
    leave: () => {
      clearInterval(timer);
      end();
      view.removeEventListener("up", up);
    },
    update: (next) => {
      open = next.parts[0] || "";
      open ? drawDetail() : drawList();
    },
  };
}
