// Workflows: all runs, and one as a timeline with its phases, artifacts and messages.

import { bytes, clear, clock, h, moment, plural, span } from "/static/dom.js";
import { mailOff } from "/static/mail.js";
import { go, href } from "/static/router.js";
import { get, known, name, now, on } from "/static/server.js";
import { badge, empty, facts, failure, head, kindOf, panel, state } from "/static/ui.js";

const at = (value) => new Date(value).getTime();

function track(run) {
  const passed = new Set((run.steps || run.timeline || []).map((step) => step.phase)),
    running = run.status === "running";
  return h(
    "ol",
    { class: "track", tabIndex: 0, "aria-label": "Phases" },
    run.phases.map((phase) => {
      const now = running && phase.name === run.phase;
      return h(
        "li",
        {
          class: now ? "now" : passed.has(phase.name) || run.status === "completed" ? "past" : "",
          "aria-current": now ? "step" : undefined,
        },
        h("b", { class: "cut block" }, phase.name),
        h("span", { class: "dim small cut block" }, phase.by),
      );
    }),
  );
}

const ran = (run) => {
  const last = (run.steps || []).length ? run.steps[run.steps.length - 1].at : run.startedAt,
    end = run.status === "running" ? now() : at(last);
  return span(end - at(run.startedAt));
};

export function workflowsView(view, route, title) {
  if (!known.overview.mail) return mailOff(view, "Workflows");
  let leave = () => {};
  const draw = (next) => {
    leave();
    title("Workflows");
    leave = next.parts[0] ? runPage(view, next.parts[0], title) : listOf(view);
  };
  const up = () => {
    if (location.hash.includes("/")) go("workflows");
  };
  view.addEventListener("up", up);
  draw(route);
  return {
    leave: () => {
      leave();
      view.removeEventListener("up", up);
    },
    update: draw,
  };
}

function listOf(view) {
  const box = h("div", { class: "stack" }),
    count = h("span", { class: "dim", role: "status" });
  let runs = [],
    query = "";
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Filter workflows",
    "aria-label": "Filter workflows",
    oninput: () => {
      query = search.value.toLowerCase();
      draw();
    },
  });
  clear(view, head("Workflows"), h("div", { class: "tools" }, search, count), box);
  const draw = () => {
    const shown = runs.filter((run) =>
      `${run.subject} ${run.name} ${run.id} ${run.status} ${run.phase} ${Object.values(run.agents || {}).join(" ")}`
        .toLowerCase()
        .includes(query),
    );
    count.textContent = plural(shown.length, "workflow");
    clear(
      box,
      shown.length
        ? shown
            .slice(0, 200)
            .map((run) =>
              h(
                "section",
                { class: "card", "data-item": "" },
                h(
                  "div",
                  { class: "card-head wrapping" },
                  h(
                    "h3",
                    { class: "wrap grow" },
                    h("a", { href: href("workflows", [run.id]) }, run.subject || run.name),
                  ),
                  run.due &&
                    run.status === "running" &&
                    badge(
                      at(run.due) < now() ? "overdue" : `due ${clock(run.due)}`,
                      at(run.due) < now() ? "bad" : "warn",
                    ),
                  state(run.status),
                  h("span", { class: "dim small" }, `${run.name} · ${ran(run)}`),
                ),
                track(run),
              ),
            )
        : h(
            "div",
            { class: "card" },
            empty(runs.length ? "No such workflow." : "No workflow is running. Agents start one with start_workflow."),
          ),
    );
  };
  const look = () =>
    get("/api/mail/workflows")
      .then((data) => {
        runs = data.workflows;
        if (!box.contains(document.activeElement) || !box.firstChild) draw();
      })
      .catch(failure);
  look();
  return on("mail", look);
}

// One run. An older server has the steps alone.
async function fetchRun(id) {
  try {
    return await get(`/api/mail/workflows/${name(id)}`);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    const run = (await get("/api/mail/workflows")).workflows.find((each) => each.id === id);
    if (!run) throw problem;
    return { ...run, timeline: run.steps };
  }
}

function runPage(view, id, title) {
  let gone = false;
  const crumbs = [["Workflows", href("workflows")]];
  const artifact = (each) =>
    h(
      "li",
      {},
      h(
        "details",
        {},
        h(
          "summary",
          { class: "wrap" },
          h("code", {}, each.path || each.name || String(each)),
          each.bytes !== undefined
            ? [
                h("span", { class: "dim small" }, ` ${bytes(each.bytes)} `),
                each.state && each.state !== "same" ? badge(each.state, "warn") : "",
              ]
            : "",
        ),
        each.preview
          ? h(
              "pre",
              { tabIndex: 0, role: "region", "aria-label": each.path || "Artifact" },
              each.preview,
              each.cut ? "\n…" : "",
            )
          : h("p", { class: "dim" }, "No preview."),
      ),
    );
  const draw = (run) => {
    title(run.subject || run.name);
    const steps = run.timeline || run.steps || [],
      holder = run.holder || (run.phases.find((phase) => phase.name === run.phase) || {}).by;
    clear(
      view,
      head([run.subject || run.name, " ", h("span", { class: "small" }, state(run.status))], {
        crumbs,
        note: run.id,
        actions: [run.thread && h("a", { href: href("mail", [], { thread: run.thread }) }, "Its messages")],
      }),
      h(
        "div",
        { class: "stack" },
        panel("Phases", {}, track(run)),
        h(
          "div",
          { class: "columns" },
          panel(
            "Timeline",
            {},
            h(
              "ol",
              { class: "steps" },
              h(
                "li",
                { class: "good" },
                h("span", { class: "dim num", title: moment(run.startedAt) }, clock(run.startedAt)),
                h("div", {}, h("span", {}, "Started by ", h("b", {}, run.startedBy))),
              ),
              steps.map((step) =>
                h(
                  "li",
                  { class: kindOf(step.how) || "idle", "data-item": "", tabIndex: -1 },
                  h("span", { class: "dim num", title: moment(step.at) }, clock(step.at)),
                  h(
                    "div",
                    {},
                    h(
                      "div",
                      { class: "row wrapping" },
                      h("b", {}, step.phase),
                      state(step.how),
                      h("span", { class: "dim" }, `by ${step.by}`),
                      step.to ? h("span", { class: "dim" }, `→ ${step.to}`) : "",
                      step.round > 1 ? badge(`round ${step.round}`) : "",
                      step.seconds ? h("span", { class: "dim small" }, `after ${span(step.seconds * 1000)}`) : "",
                      step.via &&
                        run.thread &&
                        h(
                          "a",
                          { class: "small", title: step.via, href: href("mail", [], { thread: run.thread }) },
                          "Message",
                        ),
                    ),
                    step.reason || step.note ? h("p", { class: "pre" }, step.reason || step.note) : "",
                    step.artifacts && step.artifacts.length
                      ? h("ul", { class: "plain tight" }, step.artifacts.map(artifact))
                      : "",
                  ),
                ),
              ),
              run.status === "running"
                ? h(
                    "li",
                    { class: "busy" },
                    h("span", { class: "dim" }, "now"),
                    h("div", {}, h("span", {}, h("b", {}, run.phase), ` waits for ${holder || "nobody"}`)),
                  )
                : "",
            ),
          ),
          panel(
            "About",
            {},
            facts([
              ["Workflow", run.name],
              ["Status", state(run.status)],
              ["Who has it", run.status === "running" && holder],
              ["Waits for", run.waitingSeconds > 0 && span(run.waitingSeconds * 1000)],
              ["Rounds", run.rounds > 0 && run.rounds],
              ["Started", moment(run.startedAt)],
              ["Runs for", ran(run)],
              ["Due", run.due && moment(run.due)],
              ...Object.entries(run.agents || {}).map(([role, agent]) => [role, agent]),
            ]),
          ),
        ),
      ),
    );
  };
  const look = async () => {
    try {
      const run = await fetchRun(id);
      if (!gone && !view.querySelector("details[open]")) draw(run);
    } catch (problem) {
      if (!gone && problem.status !== 401)
        clear(view, head("Workflow", { crumbs }), h("div", { class: "card" }, empty(problem.message)));
    }
  };
  look();
  const end = on("mail", look);
  return () => {
    gone = true;
    end();
  };
}
