// The inbox of decisions: calls that a rule of the gate asks about, programs, drift, new children, commands for terminals.

import { bytes, clear, clock, h, span } from "/static/dom.js";
import { jsonPanel } from "/static/json.js";
import { href } from "/static/router.js";
import { get, known, mayAct, mayAdmin, now, on, request } from "/static/server.js";
import { ask, badge, copyButton, empty, facts, failure, head, notice, segments } from "/static/ui.js";

// Questions of other servers of the workspace are not in the event stream.
const LOOK_MS = 3000;
const KINDS = {
  call: "Call",
  program: "Program",
  drift: "Drift",
  child: "New child",
  execute: "Command for a terminal",
};
const LABELS = { allow: "Allow", deny: "Deny", approve: "Approve", reject: "Refuse", accept: "Accept" };
const NO = new Set(["deny", "reject", "refuse"]);
const PAST = { allow: "Allowed", deny: "Denied", approve: "Approved", reject: "Refused", accept: "Accepted" };
const NEXT = {
  call: "If you allow it and its host still waits, the call goes on at once; a host that was told to try again makes it again, and it is let through. If you deny it, the host gets an error that says so.",
  program: "If you allow it, this program runs at once with the tools of its list, and with no others.",
  drift: "If you accept it, what the child offers now is written to the lock, and its tools work again.",
  child: "It runs only after it was approved and locked.",
  execute: "If you approve it, this is typed into the terminal in your name.",
};

// What an approval of a child records: each line of it, since what is not seen is not approved by anybody.
function approvalFacts(found) {
  return h(
    "div",
    { class: "stack" },
    h("p", { class: "dim small wrap" }, found.file),
    found.remarks.map((remark) => h("p", { class: "callout warn wrap" }, remark)),
    h(
      "div",
      { class: "scroll-y", tabIndex: 0, role: "region", "aria-label": "What is approved" },
      facts(
        found.facts.map(({ name, value, plain }) => [
          name,
          [h("code", { class: "wrap" }, value), plain && h("div", { class: "callout warn wrap" }, plain)],
        ]),
      ),
    ),
  );
}

// An older server has the questions of the gate alone.
async function fetchItems() {
  try {
    return (await get("/api/inbox")).items;
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    const { approvals } = await get("/api/approvals");
    return approvals.map((question) => ({
      id: question.id,
      kind: "call",
      child: question.child,
      subtool: question.subtool,
      title: `${question.child} ${question.subtool}`,
      text: question.reason,
      arguments: question.arguments,
      client: question.client || question.principal,
      scope: question.scope,
      at: question.askedAt * 1000,
      expiresAt: question.expiresAt * 1000,
      actions: ["allow", "deny"].map((word) => ({
        name: word,
        method: "POST",
        path: `/api/approvals/${question.id}/${word}`,
        body: {},
      })),
    }));
  }
}

export function approvalsView(view, route, title) {
  const list = h("div", { class: "stack", role: "list", "aria-label": "Waiting for a decision" });
  let shown = null,
    items = [],
    only = route.query.kind || "",
    ended = false;
  title("Approvals");
  const answer = async (item, action, buttons) => {
    if (!action.path.startsWith("/api/")) return; // only our own API
    let body = action.body || {},
      seen = [item.title, NEXT[item.kind]].filter(Boolean).join("\n\n");
    if (action.look) {
      if (!action.look.startsWith("/api/")) return;
      try {
        const found = await request("POST", action.look, {});
        body = { ...body, mark: found.mark };
        seen = approvalFacts(found);
      } catch (problem) {
        return void failure(problem);
      }
    }
    if (action.name === "reject" && item.kind === "execute") {
      const reason = await ask("Refuse it?", "The sender is notified.", "Refuse", "Why (for the sender)", "danger");
      if (reason === null) return;
      body = { ...body, reason };
    } else if (
      !NO.has(action.name) &&
      item.kind !== "call" &&
      (await ask(
        action.look ? `Approve '${item.child}'?` : `${LABELS[action.name] || action.name}?`,
        seen,
        LABELS[action.name] || action.name,
      )) === null
    )
      return;
    buttons.forEach((button) => {
      button.disabled = true;
    });
    try {
      await request(action.method || "POST", action.path, body);
      notice(`${PAST[action.name] || "Done"}: ${item.title || item.child}`, "good");
    } catch (problem) {
      failure(problem);
    }
    await look();
    const next = list.querySelector("button");
    (next || view).focus({ preventScroll: true });
  };
  const card = (item) => {
    const buttons = [];
    for (const [place, action] of (item.actions || [])
      .filter((each) => (each.scope === "admin" ? mayAdmin() : mayAct()))
      .entries())
      buttons.push(
        h(
          "button",
          {
            type: "button",
            class: NO.has(action.name) ? "" : place === 0 ? "main" : "",
            onclick: () => answer(item, action, buttons),
          },
          action.look ? "Look and approve" : LABELS[action.name] || action.name,
        ),
      );
    let args = null;
    if (item.arguments)
      args = typeof item.arguments === "string" ? { text: item.arguments } : { value: item.arguments };
    const link =
      item.kind === "drift"
        ? h("a", { href: href("children", [item.child, "lock"]) }, `${item.child}: the differences`)
        : item.child && known.children.has(item.child)
          ? h("a", { href: href("children", [item.child]) }, item.child)
          : item.child;
    return h(
      "div",
      { class: "card", role: "listitem", "data-approval": item.id, "data-item": "", tabIndex: -1 },
      h(
        "div",
        { class: "card-head wrapping" },
        badge(KINDS[item.kind] || item.kind, item.kind === "call" || item.kind === "program" ? "warn" : ""),
        h("h3", { class: "wrap grow" }, item.title || [item.child, item.subtool].filter(Boolean).join(" ")),
        item.expiresAt > 0 &&
          h("span", { class: "dim small", "data-expires": item.expiresAt }, `open for ${span(item.expiresAt - now())}`),
        h("span", { class: "dim small" }, item.at ? `since ${clock(item.at)}` : ""),
      ),
      h(
        "div",
        { class: "stack" },
        item.text && h("p", { class: "pre" }, item.text),
        facts([
          ["Asked by", item.client || item.from],
          ["Why", item.reason],
          ["Child", item.kind === "execute" ? "" : link],
          ["Subtool", item.subtool && h("code", {}, item.subtool)],
          ["Answer holds", item.scope],
          ["What happens", NEXT[item.kind]],
        ]),
        item.tools && item.tools.length
          ? h(
              "div",
              {},
              h("h4", {}, "Tools it may call"),
              h(
                "ul",
                { class: "plain tight" },
                item.tools.map((tool) =>
                  h(
                    "li",
                    { class: "wrap" },
                    h("code", {}, typeof tool === "string" ? tool : tool.name || JSON.stringify(tool)),
                  ),
                ),
              ),
            )
          : "",
        item.code &&
          h(
            "div",
            {},
            h(
              "div",
              { class: "row" },
              h("h4", { class: "grow" }, "Code"),
              h("span", { class: "dim small" }, bytes(item.code.length)),
              copyButton(item.code),
            ),
            h("pre", { tabIndex: 0, role: "region", "aria-label": "Code of the program" }, item.code),
          ),
        args && jsonPanel({ execute: "Command", program: "Manifest" }[item.kind] || "Arguments", args),
        item.command && h("p", { class: "dim small" }, "In a terminal: ", h("code", {}, item.command)),
        buttons.length ? h("div", { class: "row end" }, buttons) : "",
      ),
    );
  };
  const draw = () => {
    const found = items.filter((item) => !only || item.kind === only),
      mark = JSON.stringify(found.map((item) => item.id));
    if (mark === shown) {
      // leave the focus where it is
      list.querySelectorAll("[data-expires]").forEach((node) => {
        node.textContent = `open for ${span(Number(node.dataset.expires) - now())}`;
      });
      return;
    }
    shown = mark;
    clear(
      list,
      found.length
        ? found.map(card)
        : h(
            "div",
            { class: "card", role: "listitem" },
            empty(items.length ? "Nothing of this kind waits." : "Nothing waits for a decision."),
          ),
    );
  };
  async function look() {
    try {
      items = await fetchItems();
    } catch (problem) {
      return void failure(problem);
    }
    if (!ended) draw();
  }
  clear(
    view,
    head("Approvals", {
      note: "Everything that waits for a decision of a person. An answer here continues the work at once.",
      actions: [
        segments(
          "Kind",
          [
            ["", "All"],
            ["call", "Calls"],
            ["program", "Programs"],
            ["drift", "Drift"],
            ["child", "Children"],
            ["execute", "Commands"],
          ],
          only,
          (kind) => {
            only = kind;
            draw();
          },
        ),
      ],
    }),
    list,
  );
  look();
  const ends = [on("server", look), on("inbox", look)],
    timer = setInterval(() => {
      if (!document.hidden) look();
    }, LOOK_MS);
  return () => {
    ended = true;
    ends.forEach((end) => end());
    clearInterval(timer);
  };
}
