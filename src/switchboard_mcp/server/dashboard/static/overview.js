// The overview: what needs attention first, then figures, charts over a range, health, sessions and the latest calls.

import { bars, gather, msTick, per, savedIn, TimeChart } from "/static/chart.js";
import { bytes, clear, clock, compact, h, ms, number, percent, plural, span, throttle } from "/static/dom.js";
import { go, href, replace } from "/static/router.js";
import { get, known, now, on, rows } from "/static/server.js";
import { badge, dot, empty, head, icon, outcome, panel, segments } from "/static/ui.js";

const ILL = new Set(["unhealthy", "quarantined", "absent"]);
const total = (all, key) => all.reduce((sum, row) => sum + (row[key] || 0), 0);
export const RANGES = [
  ["5m", "5\u00a0min", 5],
  ["1h", "1\u00a0h", 60],
  ["6h", "6\u00a0h", 360],
  ["24h", "24\u00a0h", 1440],
  ["7d", "7\u00a0d", 10080],
  ["30d", "30\u00a0d", 43200],
];
const LEVELS = { error: "bad", warning: "warn", info: "busy" };

function tile(label, value, note, kind) {
  return h(
    "div",
    { class: `tile ${kind || ""}` },
    h("dt", {}, label),
    h("dd", {}, value),
    note && h("dd", { class: "note" }, note),
  );
}

// Tokens of results that did not reach a model, beside those of the tool lists.
const ofResults = (counts) =>
  counts && counts.changed
    ? ` Of results, ${number(counts.saved || 0)} more tokens were kept out of the context of models${counts.reads ? `, and ${plural(counts.reads, "read")} of the rest cost ${number(counts.readTokens)}` : ""}.`
    : "";

const linkTo = ({ view, id, kind }) => {
  if (!view || view === "overview") return "";
  const parts = id
    ? view === "mail"
      ? String(id).split("/")
      : [id, ...(kind === "drift" ? ["lock"] : kind === "sandbox" ? ["sandbox"] : [])]
    : [];
  return href(view === "suites" ? "children" : view, parts);
};

// What needs attention, as the server lists it; an older server has it in its rows.
function attention() {
  const about = known.overview;
  if (about.attention)
    return about.attention.map((item) => ({
      level: LEVELS[item.level] || "warn",
      text: item.text,
      hint: item.hint,
      to: linkTo(item),
      kind: item.kind,
    }));
  const found = rows().filter((row) => ILL.has(row.health) || row.drift || row.lockTrouble);
  const items = found.map((row) => ({
    level: row.drift && !row.lockTrouble ? "warn" : "bad",
    kind: row.drift ? "drift" : "child",
    title: row.suite,
    to: href("children", [row.id]),
    text: row.trouble ? row.trouble.message : `${plural(row.drift || 0, "difference")} from the lock.`,
    hint: row.trouble ? row.trouble.hint : "Review the differences, then accept them.",
  }));
  if (about.approvals)
    items.unshift({
      level: "warn",
      kind: "approval",
      text: `${plural(about.approvals, "call")} ${about.approvals === 1 ? "waits" : "wait"} for your decision.`,
      to: href("approvals"),
    });
  for (const problem of [about.auditTrouble, about.disabled])
    if (problem) items.unshift({ level: "bad", text: problem.message, hint: problem.hint });
  const shown = found.map((row) => (row.trouble ? row.trouble.message : ""));
  for (const text of about.warnings)
    if (
      !shown.includes(text) &&
      !found.some((row) => row.state === "absent" && text.includes(`'${row.child}' is not approved`))
    )
      items.push({ level: "warn", kind: "config", text });
  return items;
}

export function overviewView(view, route) {
  known.history = []; // of another range
  let range = RANGES.some(([id]) => id === route.query.range) ? route.query.range : "1h",
    isStored = false,
    memory = null,
    waiting = null,
    orders = [];
  const tiles = h("dl", { class: "stats" }),
    troubles = h("div"),
    latest = h("div"),
    hosts = h("div"),
    health = h("div"),
    suites = h("div"),
    base = h("p", { class: "dim small" }),
    perColumn = h("span", { class: "dim small" }),
    savedOver = h("span", { class: "dim small" });
  const pick = (from, to) => go("calls", [], { from, to });
  const calls = new TimeChart({
    label: "Calls over time",
    series: [
      { key: "ok", name: "calls", kind: "bar", ink: 1 },
      { key: "errors", name: "failed", kind: "bar", ink: 2 },
    ],
    pick,
  });
  const latency = new TimeChart({
    label: "Latency over time",
    series: [
      { key: "p50", name: "median", kind: "line", ink: 1 },
      { key: "p95", name: "p95", kind: "line", ink: 3 },
    ],
    format: ms,
    tick: msTick,
    least: 0.1,
    pick,
  });
  const saved = new TimeChart({
    label: "Tokens saved",
    series: [{ key: "saved", name: "tokens", kind: "area", ink: 4 }],
    least: 10,
  });
  clear(
    view,
    head("Overview", {
      note: `${known.overview.workspace} · Switchboard ${known.overview.version}${known.overview.mode === "governed" ? " · governed" : ""}`,
      actions: [
        segments("Time range", RANGES, range, (next) => {
          range = next;
          replace("overview", [], { range: next === "1h" ? "" : next });
          fetchHistory().catch(() => {});
        }),
      ],
    }),
    h(
      "div",
      { class: "stack" },
      h("section", { class: "card flush", "aria-label": "Needs attention" }, troubles),
      tiles,
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          {},
          panel([h("h3", {}, "Calls"), perColumn, h("span", { class: "grow" }), calls.legend], {}, calls.outer),
          panel([h("h3", { class: "grow" }, "Latency"), latency.legend], {}, latency.outer),
          panel(
            [h("h3", { class: "grow" }, "Tokens saved"), savedOver],
            { class: "savings" },
            saved.outer,
            base,
            suites,
          ),
        ),
        h(
          "div",
          {},
          panel(
            [h("h3", { class: "grow" }, "Health"), h("a", { class: "small", href: href("children") }, "Children")],
            {},
            health,
          ),
          panel(
            [
              h("h3", { class: "grow" }, "Sessions"),
              h("a", { class: "small", href: href("sessions") }, "All sessions"),
            ],
            {},
            hosts,
          ),
          panel(
            [h("h3", { class: "grow" }, "Latest calls"), h("a", { class: "small", href: href("calls") }, "All calls")],
            { class: "last" },
            latest,
          ),
        ),
      ),
    ),
  );

  const drawTiles = () => {
    const all = rows().filter((row) => row.state !== "disabled"),
      about = known.overview,
      off = known.children.size - all.length;
    const ill = all.filter((row) => ILL.has(row.health)).length,
      running = all.filter((row) => row.started).length,
      { made, wrong, p95 } = sums();
    const label = RANGES.find(([id]) => id === range)[1];
    clear(
      tiles,
      tile("Calls", compact(made), `in ${label}, ${total(all, "inFlight")} in flight`),
      tile("Failed", made ? percent(wrong, made) : "–", plural(wrong, "call"), wrong ? "bad" : ""),
      tile("p95", ms(p95 || -1), `slowest interval of ${label}`),
      tile("Children", number(all.length), `${running} running${off ? `, ${off} disabled` : ""}`),
      tile("Failing", number(ill), ill ? "see above" : "all well", ill ? "bad" : "good"),
      tile("Sessions", number(about.sessions), `up ${span(now() - about.startedAt)}`),
      tile("Tokens saved", compact(savings().sum), savings().span),
      memory &&
        memory.total > 0 &&
        tile(
          "Memory",
          bytes(memory.total),
          memory.saved ? `at least ${bytes(memory.saved)} saved` : "with all children",
        ),
      about.mail && tile("Mail waiting", waiting === null ? "…" : number(waiting), "messages in inboxes"),
    );
  };
  const sums = () => {
    const begin = now() - RANGES.find(([id]) => id === range)[2] * 60000;
    return known.history
      .filter(([at, width]) => at + width * 1000 > begin)
      .reduce(
        (sum, [, , made, wrong, , p95]) => ({
          made: sum.made + made,
          wrong: sum.wrong + wrong,
          p95: Math.max(sum.p95, p95),
        }),
        { made: 0, wrong: 0, p95: 0 },
      );
  };
  const savings = () => {
    const [, label, minutes] = RANGES.find(([id]) => id === range),
      begin = now() - minutes * 60000,
      found = savedIn(known.history, isStored, known.points, begin, now());
    return { ...found, span: found.from > begin ? "since the start" : `in ${label}` };
  };
  const drawTroubles = () => {
    const items = [
      ...orders.map((order) => ({
        level: "warn",
        title: `execute for ${order.to}`,
        text: `${order.from}: ${order.excerpt}`,
        to: href("mail", [order.to, order.id]),
      })),
      ...attention(),
    ];
    items.sort((one, other) => (other.level === "bad") - (one.level === "bad"));
    const worst = items.some(({ level }) => level === "bad") ? "bad" : "warn";
    if (!known.children.size)
      items.push({
        level: "busy",
        text: "There are no suites yet.",
        hint: "Add some with `switchboard init` or `switchboard add NAME -- CMD`.",
      });
    clear(
      troubles,
      items.length
        ? [
            h(
              "div",
              { class: "card-head" },
              h("h3", { class: "grow" }, "Needs attention"),
              badge(number(items.length), worst),
            ),
            h(
              "ul",
              { class: "attention" },
              items
                .slice(0, 30)
                .map((item) =>
                  h(
                    "li",
                    { "data-item": "" },
                    icon(item.level, item.level),
                    h(
                      "div",
                      { class: "what" },
                      item.title && h("b", { class: "wrap" }, `${item.title} `),
                      h("span", { class: "wrap" }, item.text),
                      item.hint && h("p", { class: "remedy wrap" }, item.hint),
                    ),
                    item.to
                      ? h("a", { href: item.to, "aria-label": `Review: ${item.title || item.text}` }, "Review")
                      : "",
                  ),
                ),
            ),
          ]
        : h("p", { class: "calm" }, icon("good", "good"), "Nothing needs attention."),
    );
  };
  const drawTraffic = () => {
    const [, , minutes] = RANGES.find(([id]) => id === range),
      end = now();
    const { width, first, last, columns } = gather(known.history, end - minutes * 60000, end, 90);
    const { made, wrong, p95 } = sums();
    perColumn.textContent = `per ${per(width)}`;
    calls.set(columns, width, first, last, `${plural(made, "call")}, ${wrong} failed.`);
    latency.set(columns, width, first, last, `p95 at most ${ms(p95)}.`);
  };
  const drawSavings = () => {
    const { from, sum, line, span } = savings();
    savedOver.textContent = span;
    saved.set(line, 0, from, Math.max(now(), from + 1000), `${number(sum)} tokens ${span}.`);
  };
  const drawHealth = () => {
    const about = known.overview,
      all = rows(),
      ill = all.filter((row) => ILL.has(row.health)).length;
    const line = (label, word, kind, note) =>
      h(
        "li",
        { class: "row" },
        h("span", { class: "grow cut" }, label),
        note && h("span", { class: "dim small cut" }, note),
        h("span", { class: "w-word" }, dot(word, kind)),
      );
    const bus = about.bus;
    clear(
      health,
      h(
        "ul",
        { class: "plain tight" },
        line(
          "Server",
          known.line === "live" ? "up" : known.line,
          known.line === "live" ? "good" : "bad",
          `process ${about.pid}`,
        ),
        line(
          "Children",
          ill ? `${ill} failing` : "healthy",
          ill ? "bad" : "good",
          plural(all.length, "child", "children"),
        ),
        line(
          "Audit log",
          about.auditTrouble ? "failed" : about.audit ? "on" : "off",
          about.auditTrouble ? "bad" : about.audit ? "good" : "idle",
        ),
        line("Mail", about.mail ? "on" : "off", about.mail ? "good" : "idle"),
        bus
          ? line(
              "Bus",
              bus.state || "on",
              bus.problem ? "bad" : undefined,
              [
                bus.waiting && `${number(bus.waiting)} waiting`,
                bus.inFlight && `${number(bus.inFlight)} in flight`,
                bus.backlog && `${number(bus.backlog)} not sent`,
              ]
                .filter(Boolean)
                .join(", "),
            )
          : "",
        about.history !== undefined
          ? line(
              "History",
              about.history ? "on" : "off",
              about.history ? "good" : "idle",
              about.history ? "kept over restarts" : "",
            )
          : "",
      ),
    );
  };
  const drawHosts = () => {
    const all = known.overview.sessionList || [],
      shown = all.slice(-8).reverse(),
      more = known.overview.sessions - shown.length;
    clear(
      hosts,
      all.length
        ? h(
            "ul",
            { class: "plain tight" },
            shown.map((one) =>
              h(
                "li",
                { class: "row" },
                h(
                  "span",
                  { class: "grow cut" },
                  one.client || "unnamed client",
                  h(
                    "span",
                    { class: "dim" },
                    ` ${[one.version, one.profile && `profile ${one.profile}`].filter(Boolean).join(" · ")}`,
                  ),
                ),
                h(
                  "span",
                  { class: "num dim" },
                  `${plural(one.calls, "call")}${one.inFlight ? ` +${one.inFlight}` : ""}`,
                ),
                h("span", { class: "num dim w-age" }, span(now() - one.startedAt)),
              ),
            ),
          )
        : empty("None at the moment."),
      more > 0 && h("p", { class: "dim small" }, `and ${number(more)} more`),
    );
  };
  const drawCalls = throttle(() => {
    const last = known.calls.slice(-8).reverse();
    clear(
      latest,
      last.length
        ? h(
            "ul",
            { class: "plain tight" },
            last.map((call) =>
              h(
                "li",
                { class: "row" },
                h("span", { class: "dim num small" }, clock(call.at)),
                h(
                  "a",
                  { class: "grow cut", href: href("calls", [call.seq]) },
                  `${call.child} · ${call.subtool || call.kind}`,
                ),
                h("span", { class: "dim small cut" }, call.client || call.who || ""),
                h("span", { class: "num dim w-age" }, ms(call.ms)),
                h("span", { class: "w-word cut" }, outcome(call.outcome)),
              ),
            ),
          )
        : empty("None yet."),
    );
  });
  const fetchSavings = async () => {
    const savings = await get("/api/savings");
    known.points = savings.points;
    known.savings = savings;
    clear(
      suites,
      savings.suites.length
        ? [h("h4", {}, "In each session, by suite, before introspect"), bars(savings.suites)]
        : empty("Nothing measured yet: savings are known once a child has run."),
    );
    clear(
      base,
      `Compared with listing every tool of these suites in each session that called something (${number(savings.sessions)} since the start), less ${plural(savings.introspections, "introspect call")}. Estimated.${ofResults(savings.results)}`,
    );
    drawSavings();
    drawTiles();
  };
  const fetchMail = async () => {
    if (!known.overview.mail) return;
    const [about, found] = await Promise.all([
      get("/api/mail/agents"),
      get("/api/mail/messages", { place: "inbox", action: "execute", limit: 10 }),
    ]);
    waiting = about.counts.inbox;
    orders = found.messages.filter((order) => order.from !== known.overview.sender);
    drawTiles();
    drawTroubles();
  };
  const fetchHistory = async () => {
    const mine = range,
      found = await get("/api/history", { range });
    if (mine !== range) return;
    known.history = found.points;
    isStored = found.stored;
    drawTraffic();
    drawSavings();
    drawTiles();
  };
  const fetchMemory = async () => {
    memory = await get("/api/memory");
    drawTiles();
  };
  drawTiles();
  drawHosts();
  drawTroubles();
  drawTraffic();
  drawSavings();
  drawHealth();
  drawCalls();
  const fetches = [fetchHistory, fetchMemory, fetchSavings, fetchMail];
  fetches.forEach((fetch) => fetch().catch(() => {}));
  const timer = setInterval(() => {
    if (!document.hidden) {
      drawTiles();
      drawHosts();
      drawTraffic();
      drawSavings();
    }
  }, 5000);
  const slow = setInterval(() => {
    if (!document.hidden) [fetchHistory, fetchMemory].forEach((fetch) => fetch().catch(() => {}));
  }, 15000);
  const live = throttle(() => {
    drawTraffic();
    drawTiles();
  });
  const ends = [
    on("children", () => {
      drawTroubles();
      drawHealth();
    }),
    on("server", () => {
      drawTroubles();
      drawHosts();
      drawHealth();
    }),
    on("line", drawHealth),
    on("calls", drawCalls),
    on("history", (point) => {
      if (!point) return void fetchHistory().catch(() => {});
      if (range === "5m" || range === "1h") live();
    }),
    on("savings", throttle(drawSavings)),
    on("mail", () => fetchMail().catch(() => {})),
  ];
  const saver = setInterval(() => {
    if (!document.hidden) fetchSavings().catch(() => {});
  }, 10000);
  return () => {
    [timer, slow, saver].forEach(clearInterval);
    ends.forEach((end) => end());
  };
}
