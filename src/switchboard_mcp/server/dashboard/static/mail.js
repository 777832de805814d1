// Mail and workflows: agents, messages, threads; sending as the overseer, approving or rejecting an `execute`.

import { ask, badge, clear, clock, h, notice, number, plural, state } from "/static/dom.js";
import { List } from "/static/list.js";
import { get, known, name, on, post } from "/static/server.js";

const ACTIONS = ["status_update", "delegate_task", "request_review", "submit_result", "execute"];
const OPEN = ["inbox", "claimed"];

function off(view, title) {
  clear(view, h("h2", { class: "hidden" }, title), h("div", { class: "card" }, h("p", { class: "empty" }, "Mail is off. Turn it on with mail.enabled in the config.")));
  return () => {};
}

export function mailView(view, go, chosen) {
  if (!known.overview.mail) return off(view, "Mail");
  const wanted = { agent: "", q: "", place: "", action: "" };
  let next = 0, turn = 0, about = { agents: [], teams: [], counts: {} };
  const people = h("div", { class: "people" }), aside = h("article", { class: "card detail reading", "aria-label": "Message", hidden: true });
  const count = h("span", { class: "dim", role: "status" });
  const list = new List({
    label: "Messages", rowHeight: 58, key: (message) => message.to + message.id, empty: "No such message.", open: (message) => read(message.to, message.id),
    row: (message) => h("div", { class: "letter" },
      h("div", { class: "row" }, h("b", { class: "cut" }, message.from), h("span", { class: "dim" }, "→"), h("span", { class: "grow cut" }, message.to), badge(message.action.replace("_", " "), message.action === "execute" ? "warn" : ""), message.place === "inbox" ? badge("waits", "busy") : state(message.outcome || message.place), h("span", { class: "dim num" }, clock(message.at))),
      h("p", { class: "cut dim" }, message.verified ? "" : h("span", { class: "unverified", title: "The sender is not verified" }, "unverified "), message.excerpt)),
    more: async () => {
      const mine = turn;
      try {
        const page = await get("/api/mail/messages", { ...wanted, before: next, limit: 100 });
        if (mine !== turn) return;
        next = page.next;
        list.set([...list.items, ...page.messages], !page.next);
        const looking = wanted.q || wanted.action;
        count.textContent = looking ? `${plural(list.items.length, "message")} found${page.next ? ", older ones below" : ""}` : plural(page.total, "message");
      } catch (problem) { list.ended = true; notice(problem.message); }
    },
  });
  const again = () => { turn++; next = 0; list.items = []; list.place = 0; list.ended = false; list.fetching = false; list.node.scrollTop = 0; list.draw(); };
  // New messages are inserted at the top and keep the scroll position.
  const news = async () => {
    const mine = turn;
    const page = await get("/api/mail/messages", { ...wanted, limit: 100 });
    if (mine !== turn) return;
    const fresh = new Map(page.messages.map((message) => [message.to + message.id, message]));
    const oldest = page.messages.length ? page.messages[page.messages.length - 1].order : Infinity;
    const kept = list.items.filter((message) => message.order < oldest);
    if (!list.items.length) next = page.next;
    list.set([...fresh.values(), ...kept], list.items.length ? undefined : !page.next);
    if (!wanted.q && !wanted.action) count.textContent = plural(page.total, "message");
  };
  let typing = 0;
  const search = h("input", { type: "search", id: "search", placeholder: "Search messages", "aria-label": "Search messages", oninput: () => { clearTimeout(typing); typing = setTimeout(() => { wanted.q = search.value; again(); }, 250); } });
  const choice = (label, key, words) => { const box = h("select", { "aria-label": label, onchange: () => { wanted[key] = box.value; again(); } }, words.map(([value, text]) => h("option", { value }, text))); return box; };
  clear(view, h("h2", { class: "hidden" }, "Mail"),
    h("div", { class: "row tools" }, search,
      choice("Where messages are", "place", [["", "everywhere"], ["inbox", "waiting"], ["claimed", "claimed"], ["archive", "archive"], ["deadletter", "dead letters"]]),
      choice("Kind of message", "action", [["", "every action"], ...ACTIONS.map((word) => [word, word.replace("_", " ")])]),
      known.overview.mayAct && h("button", { type: "button", class: "main", onclick: () => write() }, "Write"), count),
    h("div", { class: "mail" }, h("nav", { class: "card", "aria-label": "Agents" }, people), h("div", { class: "card full" }, list.node), aside));

  const drawPeople = () => {
    const entry = (agent, label, extra) => h("li", {}, h("button", { type: "button", class: "person", "aria-pressed": String(wanted.agent === agent), onclick: () => { wanted.agent = agent; drawPeople(); again(); } }, label, extra));
    clear(people, h("h3", {}, "Agents"), h("ul", { class: "plain tight" }, entry("", h("span", { class: "grow" }, "Everyone")),
      [...about.agents].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true })).map((agent) => entry(agent.name, [h("span", { class: `lamp ${agent.presence}`, title: agent.presence }), h("span", { class: "grow cut" }, agent.styling?.icon && `${agent.styling.icon} `, agent.styling?.color && h("span", { class: "agent-color", style: `background: ${agent.styling.color}`, title: agent.styling.color }), agent.name, h("span", { class: "hidden" }, `, ${agent.presence}`), agent.role && h("span", { class: "dim" }, ` ${agent.role}`))], agent.unread ? badge(number(agent.unread), agent.starving ? "warn" : "busy", `${agent.unread} waiting`) : ""))),
    about.teams.length ? [h("h3", {}, "Teams"), h("ul", { class: "plain tight" }, about.teams.map(({ name: team, team: { members } }) => h("li", { class: "team" }, h("b", {}, team), h("span", { class: "dim wrap" }, ` ${members.join(", ")}`))))] : "");
  };
  const fetchPeople = async () => { about = await get("/api/mail/agents"); drawPeople(); };

  const read = async (to, id, quiet) => {
    let message;
    try { message = await get(`/api/mail/messages/${name(to)}/${name(id)}`); } catch (problem) { return void (quiet || notice(problem.message)); }
    history.replaceState(null, "", `#mail/${name(to)}/${name(id)}`);
    const close = () => { aside.hidden = true; history.replaceState(null, "", "#mail"); list.node.focus(); };
    const decide = async (verb) => {
      const reason = verb === "reject" ? await ask("Refuse it?", `${message.from} is notified.`, "Refuse", "Why (for the sender)") : await ask("Have this typed?", `Into the terminal of ${message.to}:\n\n${message.payload}`, "Approve");
      if (reason === null) return;
      try { await post(`/api/mail/messages/${name(to)}/${name(id)}/${verb}`, verb === "reject" ? { reason } : {}); notice(verb === "approve" ? "Approved, and sent." : "Refused.", "good"); } catch (problem) { notice([problem.message, problem.hint].filter(Boolean).join(" ")); }
      await read(to, id, true);
    };
    const may = known.overview.mayAct;
    clear(aside,
      h("div", { class: "row" }, h("h3", { class: "grow cut", tabIndex: -1 }, message.thread.length > 1 ? `Thread of ${message.thread.length}` : "Message"), h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: close }, "✕")),
      message.thread.map((each) => h("section", { class: `message ${each.id === message.id ? "this" : ""}` },
        h("div", { class: "row wrapping" }, h("b", {}, each.from), h("span", { class: "dim" }, "→"), h("span", {}, each.to), badge(each.action.replace("_", " "), each.action === "execute" ? "warn" : ""), each.place === "inbox" ? badge("waits", "busy") : state(each.outcome || each.place), each.verified ? "" : badge("unverified", "warn", "The sender is only said, not known"), each.priority !== "normal" && badge(each.priority, "warn"), h("span", { class: "dim small" }, clock(each.at))),
        h("pre", { class: "payload", tabIndex: 0 }, each.payload),
        each.reason && h("p", { class: "remedy wrap" }, each.reason))),
      may && message.action === "execute" && message.from !== known.overview.sender && OPEN.includes(message.place) && h("div", { class: "row" }, h("button", { type: "button", class: "main", onclick: () => decide("approve") }, "Approve"), h("button", { type: "button", onclick: () => decide("reject") }, "Refuse")),
      may && h("div", { class: "row" }, h("button", { type: "button", onclick: () => write(message) }, "Reply")),
      h("p", { class: "dim wrap small" }, message.id));
    aside.hidden = false;
    if (matchMedia("(max-width: 1100px)").matches) aside.querySelector("h3").focus();
  };

  const write = (answering) => {
    const options = [...about.agents.map((agent) => [agent.name, agent.name]), ...about.teams.map((team) => [`team:${team.name}`, `team ${team.name}`])];
    const to = h("select", { required: true, "aria-label": "To" }, options.map(([value, text]) => h("option", { value, selected: answering ? value === answering.from : value === wanted.agent }, text)));
    const action = h("select", { "aria-label": "Action" }, ACTIONS.map((word) => h("option", { value: word }, word.replace("_", " "))));
    const priority = h("select", { "aria-label": "Priority" }, ["normal", "low", "high", "urgent"].map((word) => h("option", { value: word }, word)));
    const text = h("textarea", { rows: 8, required: true, "aria-label": "Message", placeholder: "Message" });
    const problemLine = h("p", { class: "bad-text", role: "alert" });
    const box = h("dialog", { class: "write", "aria-label": "Write a message" },
      h("form", { onsubmit: async (event) => {
        event.preventDefault();
        try {
          await post("/api/mail/send", { to: to.value, action: action.value, priority: priority.value, payload: text.value, ...(answering ? { replyTo: answering.id } : {}) });
          box.close(); box.remove(); notice("Sent.", "good");
          await news();
        } catch (problem) { problemLine.textContent = [problem.message, problem.hint].filter(Boolean).join(" "); }
      } },
        h("h2", {}, answering ? `Reply to ${answering.from}` : `Write as ${known.overview.sender === "overseer" ? "the overseer" : known.overview.sender}`),
        h("div", { class: "row wrapping" }, h("label", {}, "To ", to), h("label", {}, "Action ", action), h("label", {}, "Priority ", priority)),
        text, problemLine,
        h("div", { class: "row end" }, h("button", { type: "button", onclick: () => { box.close(); box.remove(); } }, "Cancel"), h("button", { class: "main" }, "Send"))));
    document.body.append(box);
    box.showModal();
    text.focus();
  };

  fetchPeople().catch((problem) => notice(problem.message));
  list.draw();
  if (chosen && chosen.includes("/")) { const cut = chosen.indexOf("/"); read(chosen.slice(0, cut), chosen.slice(cut + 1)); }
  const end = on("mail", () => { news().catch(() => {}); fetchPeople().catch(() => {}); });
  const escape = (event) => { if (event.key === "Escape" && !aside.hidden && !document.querySelector("dialog[open]")) { aside.hidden = true; list.node.focus(); } };
  document.addEventListener("keydown", escape);
  return () => { turn++; end(); document.removeEventListener("keydown", escape); };
}

export function workflowsView(view) {
  if (!known.overview.mail) return off(view, "Workflows");
  const box = h("div");
  clear(view, h("h2", { class: "hidden" }, "Workflows"), box);
  const draw = (runs) => clear(box, runs.length ? runs.map((run) => {
    const passed = new Set(run.steps.map((step) => step.phase));
    return h("section", { class: "card" },
      h("div", { class: "row wrapping" }, h("h3", { class: "grow wrap" }, run.subject || run.name), state(run.status), h("span", { class: "dim" }, run.id)),
      h("ol", { class: "phases" }, run.phases.map((phase) => h("li", { class: run.status === "running" && phase.name === run.phase ? "now" : passed.has(phase.name) ? "past" : "", "aria-current": run.status === "running" && phase.name === run.phase ? "step" : undefined }, h("b", {}, phase.name), h("span", { class: "dim" }, ` ${phase.by}`)))),
      run.steps.length ? h("details", {}, h("summary", {}, plural(run.steps.length, "step")), h("ul", { class: "plain" }, run.steps.map((step) => h("li", { class: "wrap" }, h("span", { class: "dim num" }, clock(step.at)), ` ${step.phase} `, state(step.how), ` by ${step.by}`, step.reason || step.note ? `: ${step.reason || step.note}` : "")))) : h("p", { class: "dim" }, `Started by ${run.startedBy} ${clock(run.startedAt)}`));
  }) : h("div", { class: "card" }, h("p", { class: "empty" }, "No workflow is running. Agents start one with start_workflow.")));
  const fetchRuns = () => get("/api/mail/workflows").then((data) => draw(data.workflows)).catch((problem) => notice(problem.message));
  fetchRuns();
  return on("mail", fetchRuns);
}
