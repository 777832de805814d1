// The page of one child: state and what happened, subtools to look at and to try, its errors, resources, lock and sandbox.

import { TimeChart } from "/static/chart.js";
import { bytes, clear, clock, compact, h, moment, ms, number, plural, span, throttle } from "/static/dom.js";
import { diff, markedDiff } from "/static/diff.js";
import { InvalidInput, schemaForm } from "/static/form.js";
import { jsonPanel } from "/static/json.js";
import { href } from "/static/router.js";
import { get, known, mayAct, mayAdmin, name, now, on, post } from "/static/server.js";
import { ask, badge, empty, facts, failure, head, kindOf, notice, outcome, panel, state, tabs } from "/static/ui.js";

const DONE = {
  start: "Started.",
  stop: "Stopped.",
  restart: "Restarted.",
  approve: "Accepted and locked.",
  enable: "Enabled.",
  disable: "Disabled.",
};
// What an event of the lifecycle means to a person, if its name does not say it.
const EVENTS = { call: "starting, for a call" };
const TABS = [
  ["", "Overview"],
  ["subtools", "Subtools"],
  ["stderr", "Standard error"],
  ["resources", "Resources"],
  ["lock", "Lock"],
  ["sandbox", "Sandbox"],
];

// As in: claude-code ×2, codex.
function users(child) {
  const counts = new Map();
  for (const { client } of child.users || [])
    counts.set(client || "unnamed", (counts.get(client || "unnamed") || 0) + 1);
  const names = [...counts].map(([client, count]) => (count > 1 ? `${client} ×${count}` : client)),
    more = child.userCount - (child.users || []).length;
  return [...names, ...(more > 0 ? [`${more} more`] : [])].join(", ");
}

export function childView(view, route, title) {
  const id = route.parts[0];
  let tab = route.parts[1] || "",
    part = route.parts[2] || "",
    child = null,
    seen = "",
    gone = false,
    leaveTab = () => {};
  const heading = h("div"),
    body = h("div", { class: "stack" });
  clear(view, heading, body);
  title(id);

  const act = async (verb, button, data) => {
    if (button) button.disabled = true;
    try {
      await post(`/api/children/${name(id)}/${verb}`, data);
      notice(DONE[verb], "good");
    } catch (problem) {
      failure(problem);
    }
    if (button) button.disabled = false;
    await fetchChild();
  };
  const button = (verb, label, kind) =>
    h("button", { type: "button", class: kind, onclick: (event) => act(verb, event.currentTarget) }, label);
  const actions = () => {
    const gone = child.state === "absent" || child.state === "disabled",
      control = mayAct() && !child.builtin && child.kind !== "builtin" && !gone;
    const stop = h(
      "button",
      {
        type: "button",
        onclick: async (event) => {
          const pressed = event.currentTarget;
          if (
            !child.inFlight ||
            (await ask(
              "Stop it now?",
              `${plural(child.inFlight, "call")} in progress will fail.`,
              "Stop",
              null,
              "danger",
            ))
          )
            act("stop", pressed);
        },
      },
      "Stop",
    );
    const off = h(
      "button",
      {
        type: "button",
        onclick: async (event) => {
          const pressed = event.currentTarget;
          if (
            await ask(
              `Disable ${child.child}?`,
              "It stops, its suite leaves the tool list of every host, and it stays off until somebody enables it.",
              "Disable",
              null,
              "danger",
            )
          )
            act("disable", pressed);
        },
      },
      "Disable",
    );
    return [
      control && (child.started ? [button("restart", "Restart"), stop] : button("start", "Start", "main")),
      mayAdmin() &&
        child.events !== undefined &&
        !child.builtin &&
        child.kind !== "builtin" &&
        child.state !== "absent" &&
        (child.state === "disabled" ? button("enable", "Enable", "main") : off),
    ];
  };

  const drawHead = () => {
    clear(
      heading,
      head([child.suite, " ", h("span", { class: "small" }, state(child.health))], {
        crumbs: [["Children", href("children")]],
        note: child.description,
        actions: actions(),
      }),
      tabs(
        "Child",
        TABS.map(([key, text]) => [
          key,
          key === "lock" && child.drift
            ? [text, " ", badge(number(child.drift), "warn")]
            : key === "sandbox" && child.sandboxDenied
              ? [text, " ", badge(number(child.sandboxDenied), "warn")]
              : text,
          href("children", key ? [id, key] : [id]),
        ]),
        tab,
      ),
    );
  };
  const drawTab = () => {
    leaveTab();
    leaveTab =
      (
        { subtools: subtoolsTab, stderr: stderrTab, resources: resourcesTab, lock: lockTab, sandbox: sandboxTab }[
          tab
        ] || overviewTab
      )() || (() => {});
  };

  const overviewTab = () => {
    const trouble = child.trouble,
      weight = child.weight,
      events = child.events || [];
    clear(
      body,
      trouble
        ? h(
            "section",
            { class: "callout bad" },
            h("h3", {}, trouble.code || "Problem"),
            h("p", { class: "wrap" }, trouble.message),
            trouble.hint && h("p", { class: "remedy wrap" }, trouble.hint),
            trouble.stderr &&
              h(
                "pre",
                { tabIndex: 0, role: "region", "aria-label": "Last lines of standard error" },
                [trouble.stderr].flat().join("\n"),
              ),
          )
        : "",
      child.state === "disabled"
        ? h(
            "section",
            { class: "callout" },
            h("h3", {}, "Disabled"),
            h("p", {}, "It is off in the config. In a terminal: ", h("code", {}, `switchboard enable ${child.child}`)),
          )
        : "",
      child.drift
        ? h(
            "section",
            { class: "callout warn" },
            h("h3", {}, `${plural(child.drift, "difference")} from the lock`),
            h(
              "p",
              {},
              "What it offers has changed since it was approved. ",
              h("a", { href: href("children", [id, "lock"]) }, "Review the differences"),
            ),
          )
        : "",
      child.sandboxDenied
        ? h(
            "section",
            { class: "callout warn" },
            h("h3", {}, `Refused by its sandbox: ${number(child.sandboxDenied)}`),
            h("a", { href: href("children", [id, "sandbox"]) }, "Look at the refusals"),
          )
        : "",
      h(
        "div",
        { class: "halves" },
        h(
          "div",
          { class: "stack" },
          panel(
            "State",
            {},
            facts([
              [
                "Health",
                [
                  state(child.health),
                  child.state === child.health ? "" : h("span", { class: "dim" }, ` ${child.state}`),
                ],
              ],
              [
                "Process",
                child.pid > 0 && `${child.pid}${child.startedAt ? `, up ${span(now() - child.startedAt)}` : ""}`,
              ],
              [
                "Calls",
                [
                  h("a", { href: href("calls", [], { child: child.child }) }, number(child.calls || 0)),
                  child.inFlight ? `, ${child.inFlight} in flight` : "",
                  child.errors
                    ? [
                        ", ",
                        h(
                          "a",
                          { href: href("calls", [], { child: child.child, outcome: "failed" }) },
                          plural(child.errors, "error"),
                        ),
                      ]
                    : "",
                ],
              ],
              [
                "Latency",
                child.p50 !== undefined && [
                  `median ${ms(child.p50)}, p95 ${ms(child.p95)} `,
                  h("a", { href: href("calls", ["latency"], { child: child.child }) }, "per subtool"),
                ],
              ],
              [
                "Start times",
                child.startTimes && child.startTimes.length
                  ? child.startTimes
                      .slice(-8)
                      .map((seconds) => ms(seconds * 1000))
                      .join(", ")
                  : "",
              ],
              [
                "Used by",
                child.userCount > 0 && `${users(child)}${child.perSession ? " (a process per session)" : ""}`,
              ],
              ["Tokens", weight && `${number(weight.flat)} listed flat, ${number(weight.suite)} as a suite`],
              ["Saved", child.tokensSaved > 0 && `${compact(child.tokensSaved)} tokens per session`],
              [
                "Sandbox",
                child.sandbox &&
                  `${child.sandbox}${child.sandboxBroken ? `, without ${child.sandboxBroken.join(" and ")}` : ""}`,
              ],
              ["Runs", child.command && h("code", {}, child.command)],
              ["From", child.source],
            ]),
          ),
        ),
        panel(
          "What happened",
          {},
          events.length
            ? h(
                "ol",
                { class: "events" },
                [...events]
                  .reverse()
                  .slice(0, 100)
                  .map((event) =>
                    h(
                      "li",
                      {},
                      h("time", { class: "dim num", title: moment(event.at) }, clock(event.at)),
                      h(
                        "span",
                        { class: "wrap" },
                        h("b", { class: `dot ${kindOf(event.event) || kindOf(event.state) || "idle"}` }, EVENTS[event.event] || event.event),
                        event.text ? ` ${event.text}` : "",
                        event.seconds ? h("span", { class: "dim" }, ` ${ms(event.seconds * 1000)}`) : "",
                      ),
                    ),
                  ),
              )
            : empty("Nothing since the server has started."),
        ),
      ),
    );
  };

  const subtoolsTab = () => {
    const tools = child.subtoolList || [],
      box = h("div", { class: "stack" });
    if (!tools.length)
      return void clear(
        body,
        h(
          "div",
          { class: "card" },
          empty(
            child.started ? "It offers no subtools." : "No subtools known yet. They are known once it has started.",
          ),
        ),
      );
    let query = "";
    const search = h("input", {
      type: "search",
      id: "search",
      placeholder: `Filter ${plural(tools.length, "subtool")}`,
      "aria-label": "Filter subtools",
      oninput: () => {
        query = search.value.toLowerCase();
        drawNames();
      },
    });
    const names = h("ul", { class: "pick-list" });
    const drawNames = () =>
      clear(
        names,
        tools
          .filter((tool) => `${tool.name} ${tool.summary}`.toLowerCase().includes(query))
          .slice(0, 500)
          .map((tool) =>
            h(
              "li",
              {},
              h(
                "a",
                {
                  href: href("children", [id, "subtools", tool.name]),
                  "data-item": "",
                  "aria-current": tool.name === part ? "true" : undefined,
                },
                h("code", {}, tool.name),
                h("span", { class: "dim small cut block" }, tool.summary),
              ),
            ),
          ),
      );
    drawNames();
    clear(
      body,
      h(
        "div",
        { class: "two" },
        h("section", { class: "card", "aria-label": "Subtools" }, h("div", { class: "tools" }, search), names),
        box,
      ),
    );
    if (!part)
      return void clear(box, h("div", { class: "card" }, empty("Choose a subtool to see its schema and to try it.")));
    clear(box, h("div", { class: "card" }, empty("Looking…")));
    let left = false;
    get(`/api/children/${name(id)}/subtools/${name(part)}`)
      .then((tool) => left || drawTool(box, tool))
      .catch((problem) => left || clear(box, h("div", { class: "card" }, empty(problem.message))));
    return () => {
      left = true;
    };
  };
  const drawTool = (box, tool) => {
    const form = schemaForm(tool.inputSchema),
      problemLine = h("p", { class: "bad-text", role: "alert" }),
      answer = h("div", { class: "stack", "aria-live": "polite" }),
      notes = Object.entries(tool.annotations || {}).filter(([, value]) => value === true || typeof value === "string");
    const send = h("button", { class: "main" }, "Call");
    const tryIt = h(
      "form",
      {
        class: "form",
        onsubmit: async (event) => {
          event.preventDefault();
          problemLine.textContent = "";
          let args;
          try {
            args = form.value();
          } catch (problem) {
            if (problem instanceof InvalidInput) {
              problemLine.textContent = problem.message;
              return;
            }
            throw problem;
          }
          const risky =
            tool.annotations && tool.annotations.destructiveHint === true && tool.annotations.readOnlyHint !== true;
          if (
            risky &&
            !(await ask(
              "Call it?",
              `'${tool.name}' says that it may destroy something. It is called for real.`,
              "Call",
              null,
              "danger",
            ))
          )
            return;
          send.disabled = true;
          send.textContent = "Calling…";
          clear(
            answer,
            h("p", { class: "dim" }, "It is under way. If a rule of the gate asks, the question is under Approvals."),
          );
          try {
            const result = await post(`/api/children/${name(id)}/try`, { subtool: tool.name, args });
            clear(
              answer,
              h(
                "p",
                { class: "row" },
                outcome(result.isError ? "error" : "ok"),
                h("span", { class: "num dim" }, ms(result.ms)),
                result.seq ? h("a", { href: href("calls", [result.seq]) }, "Details of the call") : "",
              ),
              jsonPanel("Result", result.result),
            );
          } catch (problem) {
            clear(answer);
            problemLine.textContent = [problem.message, problem.hint].filter(Boolean).join(" ");
          }
          send.disabled = false;
          send.textContent = "Call";
        },
      },
      form.node,
      problemLine,
      h("div", { class: "row" }, send, form.toggle),
    );
    clear(
      box,
      panel(
        [
          h("h3", { class: "wrap mono" }, tool.name),
          notes.map(([key, value]) =>
            badge(
              value === true ? key.replace("Hint", "") : `${key}: ${value}`,
              key === "destructiveHint" ? "warn" : "",
            ),
          ),
        ],
        {},
        h("p", { class: "pre" }, tool.description || ""),
        h(
          "p",
          { class: "small" },
          h("a", { href: href("calls", [], { child: child.child, subtool: tool.name }) }, "Its calls"),
        ),
      ),
      mayAct() && tool.permitted !== false && child.state !== "disabled"
        ? panel(
            [
              h("h3", { class: "grow" }, "Try it"),
              h("span", { class: "dim small" }, "a real call: policy, gate and audit apply"),
            ],
            {},
            tryIt,
            answer,
          )
        : "",
      tool.inputSchema ? jsonPanel("Input schema", { value: tool.inputSchema }) : "",
      tool.outputSchema ? jsonPanel("Output schema", { value: tool.outputSchema }) : "",
    );
  };

  const stderrTab = () => {
    let next = 0,
      left = false,
      follow = true,
      looking = false;
    const text = h("pre", {
        class: "stderr",
        tabIndex: 0,
        role: "log",
        "aria-label": "Standard error",
        onscroll: () => {
          follow = text.scrollTop + text.clientHeight >= text.scrollHeight - 20;
        },
      }),
      note = h("p", { class: "dim small", role: "status" });
    clear(
      body,
      h(
        "section",
        { class: "card" },
        h("div", { class: "card-head" }, h("h3", { class: "grow" }, "Standard error"), note),
        text,
      ),
    );
    const look = async () => {
      if (looking || left || document.hidden) return;
      looking = true;
      try {
        const page = await get(`/api/children/${name(id)}/stderr`, { after: next });
        if (left) return;
        if (page.lines.length) {
          if (!next) clear(text);
          text.append(...page.lines.map((line) => `${line.text}\n`));
          while (text.childNodes.length > 200) text.firstChild.remove();
          if (follow) text.scrollTop = text.scrollHeight;
        } else if (!next) clear(text, h("span", { class: "dim" }, "It has written nothing."));
        next = page.next || next;
        note.textContent = page.lost ? `${plural(page.lost, "older line")} dropped` : "live";
      } catch (problem) {
        if (!left) note.textContent = problem.message;
      } finally {
        looking = false;
      }
    };
    look();
    const timer = setInterval(look, 1500);
    return () => {
      left = true;
      clearInterval(timer);
    };
  };

  const resourcesTab = () => {
    let left = false,
      points = [];
    const cpu = new TimeChart({
        label: "CPU",
        series: [{ key: "cpu", name: "CPU of one core", kind: "line", ink: 1 }],
        format: (value) => `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} %`,
        least: 1,
      }),
      memory = new TimeChart({
        label: "Memory",
        series: [{ key: "rss", name: "resident memory", kind: "line", ink: 3 }],
        format: bytes,
        least: 1048576,
      });
    cpu.gap = memory.gap = 20000;
    const figures = h("dl", { class: "pairs" });
    clear(
      body,
      panel("Now", {}, figures),
      h("div", { class: "halves" }, panel("CPU", {}, cpu.outer), panel("Memory", {}, memory.outer)),
    );
    const draw = () => {
      const columns = points.map(([at, percent, rss]) => ({ at, cpu: percent, rss })),
        end = Math.max(now(), columns.length ? columns[columns.length - 1].at : 0),
        begin = Math.min(end - 300000, columns.length ? columns[0].at : Infinity),
        last = columns[columns.length - 1];
      cpu.set(columns, 0, begin, end, last ? `${last.cpu} % now.` : "");
      memory.set(columns, 0, begin, end, last ? `${bytes(last.rss)} now.` : "");
      const pair = (label, value) => h("div", {}, h("dt", {}, label), h("dd", { class: "num" }, value));
      clear(
        figures,
        pair("CPU", last ? `${last.cpu.toFixed(1)} %` : "–"),
        pair("Memory", last ? bytes(last.rss) : "–"),
        pair("Largest", columns.length ? bytes(Math.max(...columns.map(({ rss }) => rss))) : "–"),
        pair("Process", child.pid || "none"),
      );
    };
    draw();
    get(`/api/children/${name(id)}/resources`)
      .then((data) => {
        if (!left) {
          points = data.points;
          draw();
        }
      })
      .catch((problem) => left || failure(problem));
    const live = throttle(draw),
      end = on("resources", (fresh) => {
        const point = fresh[id] || fresh[child.child];
        if (point && (!points.length || point[0] > points[points.length - 1][0])) {
          points.push(point);
          if (points.length > 2000) points.shift();
          live();
        }
      });
    return () => {
      left = true;
      end();
    };
  };

  const lockTab = () => {
    const changes = child.driftChanges || [];
    const approve =
      mayAdmin() &&
      changes.length &&
      h(
        "button",
        {
          type: "button",
          class: "main",
          onclick: async (event) => {
            const pressed = event.currentTarget;
            if (
              await ask(
                "Accept these differences?",
                `What '${child.child}' offers now is written to the lock. ${plural(changes.length, "difference")}.`,
                "Accept",
              )
            )
              await act("approve", pressed, { mark: child.driftMark });
          },
        },
        "Accept",
      );
    clear(
      body,
      child.lockTrouble
        ? h(
            "section",
            { class: "callout bad" },
            h("h3", {}, "The lock cannot be used"),
            h("p", { class: "wrap" }, child.lockTrouble.message),
            child.lockTrouble.hint && h("p", { class: "remedy wrap" }, child.lockTrouble.hint),
          )
        : "",
      changes.length
        ? panel(
            [h("h3", { class: "grow" }, `${plural(changes.length, "difference")} from the lock`), approve],
            {},
            h(
              "ul",
              { class: "plain" },
              changes
                .slice(0, 200)
                .map((change) =>
                  h(
                    "li",
                    { class: "callout warn" },
                    h("h3", { class: "wrap mono" }, change.tool),
                    change.before || change.after
                      ? [
                          h("p", { class: "dim small" }, [change.part, change.kind].filter(Boolean).join(" ")),
                          diff(String(change.before || ""), String(change.after || "")),
                        ]
                      : markedDiff(change.text),
                  ),
                ),
            ),
            h(
              "p",
              { class: "dim small below" },
              "In a terminal: ",
              h("code", {}, `switchboard lock --accept ${child.child}`),
            ),
          )
        : child.lockTrouble
          ? ""
          : h("div", { class: "card" }, empty("What it offers is what the lock has, or it is not locked.")),
    );
  };

  const sandboxTab = () => {
    const policy = child.sandboxPolicy,
      refusals = (policy && policy.refusals) || child.sandboxRefusals || [],
      promises = (policy && policy.promises) || [];
    const paths = (label, list) => [
      label,
      list && list.length
        ? h(
            "ul",
            { class: "plain tight" },
            list.map((path) => h("li", {}, h("code", {}, String(path)))),
          )
        : "",
    ];
    clear(
      body,
      panel(
        "Refusals",
        {},
        refusals.length
          ? h(
              "ul",
              { class: "plain tight" },
              refusals.map((refusal) =>
                h(
                  "li",
                  { class: "wrap" },
                  refusal.message,
                  refusal.count > 1 ? h("span", { class: "dim" }, ` ${number(refusal.count)} times`) : "",
                ),
              ),
            )
          : empty(child.sandbox ? "It has refused nothing." : "It runs without a sandbox."),
      ),
      panel(
        "Sandbox",
        {},
        facts([
          ["Kind", child.sandbox || "none"],
          ["Enforced by", policy && policy.mechanism],
          ["Not in force", child.sandboxBroken && child.sandboxBroken.join(", ")],
          ...(policy
            ? [paths("May read", policy.read), paths("May write", policy.write), paths("Protected", policy.protect)]
            : []),
        ]),
      ),
      promises.length
        ? panel(
            "What it promises",
            {},
            h(
              "ul",
              { class: "plain tight" },
              promises.map((each) =>
                h(
                  "li",
                  { class: "wrap" },
                  state(each.holds ? "on" : "off"),
                  ` ${each.text || each.name}`,
                  each.by ? h("span", { class: "dim" }, ` by ${each.by}`) : "",
                  !each.holds && each.why ? h("span", { class: "dim" }, ` (${each.why})`) : "",
                ),
              ),
            ),
          )
        : "",
      policy && policy.words ? jsonPanel("Setting", { value: policy.words }) : "",
    );
  };

  const fetchChild = async () => {
    const row = known.children.get(id);
    try {
      child = await get(`/api/children/${name(id)}`);
    } catch (problem) {
      if (gone || problem.status === 401) return;
      if (!row)
        return void clear(
          view,
          head(id, { crumbs: [["Children", href("children")]] }),
          h("div", { class: "card" }, empty(problem.message)),
        );
      child = { ...row, driftChanges: [] };
    }
    if (gone) return;
    seen = JSON.stringify(row || {});
    drawHead();
    if (!["subtools", "stderr", "resources"].includes(tab) || !body.firstChild) drawTab();
  };
  fetchChild();
  // While somebody reads or types here, the page stays as it is.
  const renew = throttle(() => {
    const row = known.children.get(id);
    if (!child || !row || JSON.stringify(row) === seen) return;
    if (!view.querySelector(".card :focus, .callout :focus")) fetchChild();
  });
  const end = on("children", (changed) => {
    if (!changed || changed.some((row) => row.id === id)) renew();
  });
  const leave = () => {
    gone = true;
    end();
    leaveTab();
  };
  leave.update = (next) => {
    if (next.parts[0] !== id || !child) return false;
    const list = body.querySelector(".pick-list"),
      scrolled = list ? list.scrollTop : 0;
    tab = next.parts[1] || "";
    part = next.parts[2] || "";
    drawHead();
    drawTab();
    const again = body.querySelector(".pick-list");
    if (again) {
      again.scrollTop = scrolled;
      const current = again.querySelector("[aria-current]");
      if (current) current.focus({ preventScroll: true });
    }
    return true;
  };
  return leave;
}
