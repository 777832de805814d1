// Calls that wait for a decision because a rule of the gate asks.

import { clear, clock, h, notice, span } from "/static/dom.js";
import { get, known, name, now, on, post } from "/static/server.js";

// Questions of other servers of the workspace are not in the event stream.
const LOOK_MS = 3000;

export function approvalsView(view) {
  const list = h("div", { class: "stack", role: "list", "aria-label": "Calls that wait" });
  let shown = "";
  async function answer(question, word, buttons) {
    buttons.forEach((button) => { button.disabled = true; });
    try {
      await post(`/api/approvals/${name(question.id)}/${word}`);
      notice(`${word === "allow" ? "Allowed" : "Denied"}: ${question.child} ${question.subtool}`, "good");
    } catch (problem) { notice(problem.message); }
    look();
  }
  function card(question) {
    const buttons = [];
    if (known.overview.mayAct) {
      buttons.push(h("button", { type: "button", class: "main", onclick: () => answer(question, "allow", buttons) }, "Allow"));
      buttons.push(h("button", { type: "button", onclick: () => answer(question, "deny", buttons) }, "Deny"));
    }
    const facts = [["Asked by", question.client || question.principal || "the agent"], ["Arguments", question.arguments], ["Why", question.reason], ["Answer", question.scope], ["Since", clock(question.askedAt * 1000)], ["Open for", span(question.expiresAt * 1000 - now())]];
    return h("section", { class: "card", role: "listitem", "data-approval": question.id }, h("h3", { class: "wrap" }, `${question.child} ${question.subtool}`),
      h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([label, value]) => [h("dt", {}, label), h("dd", { class: "wrap" }, value)])),
      h("div", { class: "row end" }, buttons));
  }
  async function look() {
    let found;
    try { found = (await get("/api/approvals")).approvals; } catch (problem) { return void (problem.status !== 401 && notice(problem.message)); }
    const ids = found.map((question) => question.id).join();
    if (ids === shown && list.firstChild) return; // leave the focus where it is
    shown = ids;
    clear(list, found.length ? found.map(card) : h("p", { class: "dim" }, "No call waits for a decision."));
  }
  clear(view, h("h2", { class: "hidden" }, "Approvals"), list);
  look();
  const end = on("server", look);
  const timer = setInterval(look, LOOK_MS);
  return () => { end(); clearInterval(timer); };
}
