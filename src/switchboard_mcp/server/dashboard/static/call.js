// The details of one call: when each part of it happened, what went in and came out, who decided, what failed.

import { clear, h, moment, ms, number, plural } from "/static/dom.js";
import { jsonPanel } from "/static/json.js";
import { go, href } from "/static/router.js";
import { get, known } from "/static/server.js";
import { badge, copyButton, empty, facts, failed, head, outcome, panel } from "/static/ui.js";

const PHASES = [
  ["person", "Waited for a person", 4],
  ["queue", "Waited for its turn", 6],
  ["start", "Start of the child", 5],
  ["child", "Child at work", 1],
  ["relay", "Checks and relay", 3],
];
const BODIES = {
  off: "Arguments and results are not kept: dashboard.callDetails is off.",
  not_kept:
    "Arguments and results are kept while a page of the dashboard is open. Set dashboard.callDetails to always in switchboard.config.json to keep them at all times.",
  no_right: "Your token may not see arguments and results.",
};

function timings(call) {
  const phases = call.phases || {},
    found = PHASES.filter(([key]) => phases[key] !== undefined && phases[key] !== null),
    all = found.reduce((sum, [key]) => sum + phases[key], 0) || 1;
  if (!found.length) return panel("Timings", {}, facts([["Took", ms(call.ms)]]));
  const parts = found.map(([key, text, ink]) => {
    const part = h("i", { class: `ink-${ink}`, title: `${text}: ${ms(phases[key])}` });
    part.style.flexGrow = String(phases[key] / all);
    return part;
  });
  return panel(
    [h("h3", { class: "grow" }, "Timings"), h("span", { class: "num" }, ms(call.ms))],
    {},
    h(
      "div",
      { class: "stack" },
      h("div", { class: "phases-bar", "aria-hidden": "true" }, parts),
      h(
        "dl",
        { class: "pairs" },
        found.map(([key, text, ink]) =>
          h(
            "div",
            {},
            h("dt", {}, h("i", { class: `swatch ink-${ink}` }), text),
            h("dd", { class: "num" }, ms(phases[key])),
          ),
        ),
      ),
    ),
  );
}

export function callView(view, route, title) {
  const seq = Number(route.parts[0]);
  let gone = false;
  const step = (by) => {
    // 1: newer
    const place = known.calls.findIndex((call) => call.seq === seq),
      next = known.calls[place + by];
    if (place >= 0 && next) go("calls", [next.seq]);
  };
  const key = (event) => {
    if (event.detail === "[") step(1);
    else if (event.detail === "]") step(-1);
  };
  view.addEventListener("key", key);
  const crumbs = [["Calls", href("calls")]];
  clear(view, head(`Call ${seq}`, { crumbs }), h("div", { class: "card" }, empty("Looking…")));
  const draw = (call) => {
    title(`${call.child} ${call.subtool || call.kind}`);
    const gate = call.gate,
      retries = call.retries || {},
      audit = call.audit,
      problem = call.failure,
      child = known.children.has(call.child);
    clear(
      view,
      head([call.child, h("span", { class: "dim" }, " / "), h("span", { class: "mono" }, call.subtool || call.kind)], {
        crumbs,
        note: `Call ${seq} · ${moment(call.at)}`,
        actions: [
          h("button", { type: "button", title: "[", onclick: () => step(1) }, "Newer"),
          h("button", { type: "button", title: "]", onclick: () => step(-1) }, "Older"),
          call.command && copyButton(call.command, "Copy as switchboard call"),
          child &&
            call.subtool &&
            h("a", { class: "small", href: href("children", [call.child, "subtools", call.subtool]) }, "Try it"),
        ],
      }),
      h(
        "div",
        { class: "stack" },
        problem || failed(call.outcome)
          ? h(
              "section",
              { class: "callout bad" },
              h("h3", { class: "wrap" }, (problem && problem.code) || call.outcome),
              problem && h("p", { class: "wrap" }, problem.message),
              problem && problem.hint && h("p", { class: "remedy wrap" }, problem.hint),
              problem && problem.stderr && h("pre", { tabIndex: 0 }, [problem.stderr].flat().join("\n")),
              h("a", { class: "small", href: href("calls", ["errors"]) }, "All errors by cause"),
            )
          : "",
        h(
          "div",
          { class: "halves" },
          panel(
            "Call",
            {},
            facts([
              ["Outcome", outcome(call.outcome)],
              ["Child", child ? h("a", { href: href("children", [call.child]) }, call.child) : call.child],
              ["Subtool", call.subtool && h("code", {}, call.subtool)],
              ["Kind", call.kind],
              ["Client", [call.client, call.version].filter(Boolean).join(" ")],
              ["Profile", call.profile],
              ["Session", call.session && h("a", { href: href("sessions", [call.session]) }, call.session)],
              ["Token", call.who],
              ["Began", call.startedAt && moment(call.startedAt)],
              ["Ended", moment(call.at)],
              ["Trace", call.traceId && [h("code", {}, call.traceId), copyButton(call.traceId, "")]],
            ]),
          ),
          h(
            "div",
            { class: "stack" },
            timings(call),
            panel(
              "Decisions",
              {},
              facts([
                [
                  "Gate",
                  gate && gate.rule >= 0
                    ? [
                        badge(gate.effect, gate.effect === "allow" ? "good" : "warn"),
                        ` by rule ${gate.rule + 1}`,
                        gate.outcome ? `, answer: ${gate.outcome}` : "",
                        gate.reason ? `. ${gate.reason}` : "",
                      ]
                    : "no rule applied",
                ],
                [
                  "Retries",
                  retries.relisted || retries.rounds
                    ? [
                        retries.relisted && "listed again, then called",
                        retries.rounds && plural(retries.rounds, "round of input", "rounds of input"),
                      ]
                        .filter(Boolean)
                        .join(", ")
                    : "none",
                ],
                [
                  "Audit",
                  audit
                    ? [
                        `entry ${number(audit.seq)}, `,
                        audit.kind,
                        " ",
                        audit.outcome || "",
                        " ",
                        h("a", { href: href("audit", [], { child: call.child }) }, "in the audit log"),
                      ]
                    : known.overview.audit
                      ? "no entry found"
                      : "off",
                ],
              ]),
            ),
          ),
        ),
        call.args ? jsonPanel("Arguments", call.args) : "",
        call.result ? jsonPanel("Result", call.result) : "",
        call.error ? jsonPanel("Error", call.error) : "",
        !call.args && !call.result ? h("div", { class: "card" }, empty(BODIES[call.bodies] || BODIES.not_kept)) : "",
      ),
    );
  };
  get(`/api/calls/${seq}`)
    .then((detail) => {
      if (!gone) draw({ ...detail.call, ...detail });
    })
    .catch((problem) => {
      if (gone || problem.status === 401) return;
      const call = known.calls.find((each) => each.seq === seq);
      if (call && problem.status !== 410) draw(call);
      else clear(view, head(`Call ${seq}`, { crumbs }), h("div", { class: "card" }, empty(problem.message)));
    });
  return () => {
    gone = true;
    view.removeEventListener("key", key);
  };
}
