// Mail: messages, threads, agents and dead letters; one message with its thread; writing as the overseer.

import { bytes, clear, clock, h, moment, number, plural, s } from "/static/dom.js";
import { List } from "/static/list.js";
import { go, href, replace } from "/static/router.js";
import { get, known, mayAct, name, now, on, post } from "/static/server.js";
import {
  ask,
  badge,
  dialog,
  empty,
  facts,
  failure,
  field,
  filterBoxes,
  head,
  notice,
  panel,
  searchBox,
  state,
  tabs,
} from "/static/ui.js";

const ACTIONS = ["status_update", "delegate_task", "request_review", "submit_result", "execute"];
const OPEN = ["inbox", "claimed"];
const words = (action) => (action || "").replaceAll("_", " ");
// The message to return to from its page.
let opened = "";

export function mailOff(view, title) {
  clear(
    view,
    head(title),
    h("div", { class: "card" }, empty("Mail is off. Turn it on with mail.enabled in the config.")),
  );
  return () => {};
}

export function mailView(view, route, title) {
  if (!known.overview.mail) return mailOff(view, "Mail");
  let leave = () => {};
  const draw = (next) => {
    leave();
    title("Mail");
    if (next.query.thread) leave = threadPage(view, next.query.thread);
    else if (next.parts.length > 1) leave = messagePage(view, next.parts[0], next.parts.slice(1).join("/"));
    else leave = ({ threads: threadsTab, agents: agentsTab, dead: deadTab }[next.query.tab] || messagesTab)(view, next);
  };
  const up = () => {
    if (location.hash.includes("/") || location.hash.includes("thread=")) go("mail");
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

const frame = (tab) => [
  head("Mail", {
    actions: [mayAct() && h("button", { type: "button", class: "main", onclick: () => write() }, "Write")],
  }),
  tabs(
    "Mail",
    [
      ["", "Messages", href("mail")],
      ["threads", "Threads", href("mail", [], { tab: "threads" })],
      ["agents", "Agents", href("mail", [], { tab: "agents" })],
      ["dead", "Dead letters", href("mail", [], { tab: "dead" })],
    ],
    tab,
  ),
];
const place = (message) => (message.place === "inbox" ? state("waiting") : state(message.outcome || message.place));
const late = (deadline) => deadline && new Date(deadline).getTime() < now();
const deadlineBadge = (message) =>
  message.deadline &&
  OPEN.includes(message.place) &&
  badge(
    late(message.deadline) ? `overdue since ${clock(message.deadline)}` : `due ${clock(message.deadline)}`,
    late(message.deadline) ? "bad" : "warn",
  );
const letter = (message) =>
  h(
    "div",
    { class: "letter" },
    h(
      "div",
      { class: "row" },
      h("b", { class: "cut" }, message.from),
      h("span", { class: "dim" }, "→"),
      h("span", { class: "cut" }, message.to),
      h("span", { class: "grow" }),
      message.priority &&
        message.priority !== "normal" &&
        badge(message.priority, message.priority === "low" ? "" : "warn"),
      deadlineBadge(message),
      message.attachment && badge("attachment"),
      badge(words(message.action), message.action === "execute" ? "warn" : ""),
      place(message),
      h("span", { class: "dim num" }, clock(message.at)),
    ),
    h(
      "p",
      { class: "cut" },
      message.verified ? "" : h("span", { class: "unverified", title: "The sender is not verified" }, "unverified "),
      message.subject ? h("span", { class: "subject" }, message.subject, " · ") : "",
      message.excerpt,
    ),
  );

function messagesTab(view, route) {
  const wanted = { agent: "", q: "", place: "", action: "", ...route.query };
  delete wanted.tab;
  let next = 0,
    turn = 0,
    about = { agents: [], teams: [] };
  const people = h("div", { class: "people" }),
    count = h("span", { class: "dim", role: "status" });
  const key = (message) => `${message.to}/${message.id}`;
  const list = new List({
    label: "Messages",
    rowHeight: 56,
    key,
    empty: "No such message.",
    kind: "letters",
    to: (message) => href("mail", [message.to, message.id]),
    open: (message) => {
      opened = key(message);
      go("mail", [message.to, message.id]);
    },
    columns: [["grow", "", letter]],
    more: async () => {
      const mine = turn;
      try {
        const page = await get("/api/mail/messages", { ...wanted, before: next, limit: 100 });
        if (mine !== turn) return;
        next = page.next;
        list.set([...list.items, ...page.messages], !page.next);
        count.textContent =
          wanted.q || wanted.action
            ? `${plural(list.items.length, "message")} found${page.next ? ", older ones below" : ""}`
            : plural(page.total, "message");
        if (opened && list.select(opened)) opened = "";
      } catch (problem) {
        list.ended = true;
        failure(problem);
      }
    },
  });
  const again = () => {
    turn++;
    next = 0;
    replace("mail", [], wanted);
    list.reset();
  };
  // New messages are inserted at the top and keep the scroll position.
  const news = async () => {
    const mine = turn,
      page = await get("/api/mail/messages", { ...wanted, limit: 100 });
    if (mine !== turn) return;
    const oldest = page.messages.length ? page.messages[page.messages.length - 1].order : Infinity,
      kept = list.items.filter((message) => message.order < oldest);
    const had = list.items.length > 0;
    if (!had) next = page.next;
    list.set([...page.messages, ...kept], had ? undefined : !page.next);
    if (!wanted.q && !wanted.action) count.textContent = plural(page.total, "message");
  };
  const { search, choice } = filterBoxes(wanted, again);
  clear(
    view,
    frame(""),
    h(
      "div",
      { class: "tools" },
      search("Search messages"),
      choice("Where messages are", "place", [
        ["", "everywhere"],
        ["inbox", "waiting"],
        ["claimed", "claimed"],
        ["archive", "archive"],
        ["deadletter", "dead letters"],
      ]),
      choice("Kind of message", "action", [["", "every action"], ...ACTIONS.map((word) => [word, words(word)])]),
      count,
    ),
    h(
      "div",
      { class: "mail" },
      h("nav", { class: "card", "aria-label": "Agents" }, people),
      h("div", { class: "card full" }, list.outer),
    ),
  );
  const drawPeople = () => {
    const entry = (agent, label, extra) =>
      h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: "person",
            "aria-pressed": String(wanted.agent === agent),
            onclick: () => {
              wanted.agent = agent;
              drawPeople();
              again();
            },
          },
          label,
          extra,
        ),
      );
    const active = document.activeElement && people.contains(document.activeElement);
    clear(
      people,
      h("h3", {}, "Agents"),
      h(
        "ul",
        { class: "plain tight" },
        entry("", h("span", { class: "grow" }, "Everyone")),
        [...about.agents]
          .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }))
          .map((agent) =>
            entry(
              agent.name,
              [
                h("span", { class: `lamp ${agent.presence}`, title: agent.presence }),
                h(
                  "span",
                  { class: "grow cut" },
                  agentName(agent),
                  h("span", { class: "hidden" }, `, ${agent.presence}`),
                  agent.role && h("span", { class: "dim" }, ` ${agent.role}`),
                ),
              ],
              agent.unread
                ? badge(number(agent.unread), agent.starving ? "warn" : "busy", `${agent.unread} waiting`)
                : "",
            ),
          ),
      ),
      about.teams.length
        ? [
            h("h3", {}, "Teams"),
            h(
              "ul",
              { class: "plain tight" },
              about.teams.map(({ name: team, team: { members } }) =>
                h(
                  "li",
                  { class: "team" },
                  h("b", {}, team),
                  h("span", { class: "dim wrap" }, ` ${members.join(", ")}`),
                ),
              ),
            ),
          ]
        : "",
    );
    if (active) {
      const pressed = people.querySelector("[aria-pressed=true]");
      if (pressed) pressed.focus();
    }
  };
  const fetchPeople = async () => {
    about = await get("/api/mail/agents");
    drawPeople();
  };
  fetchPeople().catch(failure);
  list.draw();
  const end = on("mail", () => {
    news().catch(() => {});
    fetchPeople().catch(() => {});
  });
  return () => {
    turn++;
    end();
  };
}

const agentName = (agent) => [
  agent.styling?.icon && `${agent.styling.icon} `,
  agent.styling?.color &&
    h("span", { class: "agent-color", style: `background: ${agent.styling.color}`, title: agent.styling.color }),
  agent.name,
];

function threadsTab(view, route) {
  let next = 0,
    turn = 0,
    query = route.query.q || "";
  const count = h("span", { class: "dim", role: "status" });
  const list = new List({
    label: "Threads",
    rowHeight: 56,
    empty: "No such thread.",
    kind: "letters",
    to: (thread) => href("mail", [], { thread: thread.id }),
    columns: [
      [
        "grow",
        "",
        (thread) =>
          h(
            "div",
            { class: "letter" },
            h(
              "div",
              { class: "row" },
              h("b", { class: "cut" }, thread.subject || "(no subject)"),
              h("span", { class: "grow" }),
              thread.priority && thread.priority !== "normal" && badge(thread.priority, "warn"),
              thread.deadline &&
                badge(
                  late(thread.deadline) ? "overdue" : `due ${clock(thread.deadline)}`,
                  late(thread.deadline) ? "bad" : "warn",
                ),
              thread.open ? badge(`${thread.open} open`, "busy") : "",
              h("span", { class: "dim" }, plural(thread.messages, "message")),
              h("span", { class: "dim num" }, clock(thread.lastAt)),
            ),
            h(
              "p",
              { class: "cut" },
              (thread.people || []).join(", "),
              thread.last && thread.last.excerpt ? ` · ${thread.last.excerpt}` : "",
            ),
          ),
      ],
    ],
    more: async () => {
      const mine = turn;
      try {
        const page = await get("/api/mail/threads", { q: query, before: next, limit: 50 });
        if (mine !== turn) return;
        next = page.next;
        const had = new Set(list.items.map((thread) => thread.id)); // one may come again on a later page
        list.set([...list.items, ...page.threads.filter((thread) => !had.has(thread.id))], !page.next);
        count.textContent = `${plural(list.items.length, "thread")}${page.next ? ", older ones below" : ""}`;
      } catch (problem) {
        list.ended = true;
        failure(problem);
      }
    },
  });
  const again = () => {
    turn++;
    next = 0;
    replace("mail", [], { tab: "threads", q: query });
    list.reset();
  };
  const search = searchBox("Search threads", query, (words) => {
    query = words;
    again();
  });
  clear(
    view,
    frame("threads"),
    h("div", { class: "tools" }, search, count),
    h("div", { class: "card full" }, list.outer),
  );
  list.draw();
  const end = on("mail", () => {
    if (!list.node.scrollTop) again();
  });
  return () => {
    turn++;
    end();
  };
}

function agentsTab(view) {
  const body = h("div");
  clear(view, frame("agents"), body);
  const look = () =>
    get("/api/mail/agents")
      .then(({ agents, teams }) => {
        const load = (agent) => (agent.load ? agent.load.inbox || 0 : agent.unread || 0),
          most = Math.max(1, ...agents.map(load));
        clear(
          body,
          agents.length
            ? h(
                "div",
                { class: "stack" },
                h(
                  "div",
                  { class: "scroll" },
                  h(
                    "table",
                    { class: "grid-table" },
                    h("caption", { class: "hidden" }, "Agents"),
                    h(
                      "thead",
                      {},
                      h(
                        "tr",
                        {},
                        [["Agent"], ["Presence"], ["Role"], ["Waiting", "num"], ["Claimed", "num"], ["Load"]].map(
                          ([word, kind]) => h("th", { scope: "col", class: `plain-th ${kind || ""}` }, word),
                        ),
                      ),
                    ),
                    h(
                      "tbody",
                      {},
                      agents.map((agent) => {
                        const bar = s(
                          "svg",
                          {
                            class: "bar-line load",
                            viewBox: "0 0 100 10",
                            preserveAspectRatio: "none",
                            "aria-hidden": "true",
                          },
                          s("rect", {
                            class: agent.starving ? "fill ink-2" : "fill ink-1",
                            x: 0,
                            y: 1,
                            height: 8,
                            width: (load(agent) / most) * 100,
                          }),
                        );
                        return h(
                          "tr",
                          { "data-item": "" },
                          h("td", {}, h("a", { href: href("mail", [], { agent: agent.name }) }, agentName(agent))),
                          h("td", { "data-label": "Presence" }, state(agent.presence || "unknown")),
                          h("td", { "data-label": "Role" }, agent.role || ""),
                          h(
                            "td",
                            { class: "num", "data-label": "Waiting" },
                            number(load(agent)),
                            agent.starving ? [" ", badge("starving", "warn")] : "",
                          ),
                          h(
                            "td",
                            { class: "num", "data-label": "Claimed" },
                            number((agent.load && agent.load.claimed) || 0),
                          ),
                          h("td", { "data-label": "Load" }, bar),
                        );
                      }),
                    ),
                  ),
                ),
                teams.length
                  ? panel(
                      "Teams",
                      {},
                      facts(teams.map(({ name: team, team: { members } }) => [team, members.join(", ")])),
                    )
                  : "",
              )
            : h("div", { class: "card" }, empty("No agent has registered yet.")),
        );
      })
      .catch(failure);
  look();
  return on("mail", look);
}

function deadTab(view) {
  const body = h("div", { class: "stack" });
  clear(view, frame("dead"), body);
  const look = () =>
    get("/api/mail/dead")
      .then(({ letters }) =>
        clear(
          body,
          letters.length
            ? letters.map((dead) =>
                h(
                  "section",
                  { class: "callout bad", "data-item": "" },
                  h(
                    "div",
                    { class: "row wrapping" },
                    h("h3", { class: "wrap" }, dead.subject || dead.id),
                    h("span", { class: "grow" }),
                    h("span", { class: "dim num" }, dead.at ? moment(dead.at) : ""),
                  ),
                  facts([
                    ["For", dead.agent],
                    ["From", dead.from],
                    ["Action", words(dead.action)],
                    ["Why", dead.reason],
                    ["Message", h("code", {}, dead.id)],
                  ]),
                  mayAct() &&
                    h(
                      "div",
                      { class: "row" },
                      h(
                        "button",
                        {
                          type: "button",
                          onclick: async (event) => {
                            event.currentTarget.disabled = true;
                            try {
                              await post(`/api/mail/dead/${name(dead.agent)}/${name(dead.id)}/requeue`);
                              notice("Delivered again.", "good");
                            } catch (problem) {
                              failure(problem);
                            }
                            look();
                          },
                        },
                        "Deliver again",
                      ),
                    ),
                ),
              )
            : h(
                "div",
                { class: "card" },
                empty(
                  "There are no dead letters. A message becomes one if it cannot be delivered, or fails too often.",
                ),
              ),
        ),
      )
      .catch((problem) =>
        problem.status === 404
          ? clear(body, h("div", { class: "card" }, empty("There are no dead letters.")))
          : failure(problem),
      );
  look();
  return on("mail", look);
}

const RECEIPTS = (message) =>
  (message.receipts || (message.receipt ? [message.receipt] : [])).map((receipt) =>
    h(
      "li",
      {},
      [
        receipt.recipient,
        receipt.status,
        receipt.processedAt && clock(receipt.processedAt),
        receipt.summary,
        receipt.error && (receipt.error.message || String(receipt.error)),
      ]
        .filter(Boolean)
        .join(" · "),
    ),
  );

function messageCard(message, current, refresh) {
  const attachment = message.attachment,
    shown = h("div");
  const preview = async () => {
    try {
      const file = await get(`/api/mail/messages/${name(message.to)}/${name(message.id)}/attachment`);
      clear(
        shown,
        file.text !== null && file.text !== undefined
          ? h("pre", { tabIndex: 0, role: "region", "aria-label": file.name }, file.text)
          : h(
              "p",
              { class: "dim" },
              `${file.name} is ${file.mediaType || "binary"}, ${bytes(file.bytes)}; it has no preview.`,
            ),
      );
    } catch (problem) {
      failure(problem);
    }
  };
  const decide = async (verb) => {
    const reason =
      verb === "reject"
        ? await ask("Refuse it?", `${message.from} is notified.`, "Refuse", "Why (for the sender)", "danger")
        : await ask("Have this typed?", `Into the terminal of ${message.to}:\n\n${message.payload}`, "Approve");
    if (reason === null) return;
    try {
      await post(
        `/api/mail/messages/${name(message.to)}/${name(message.id)}/${verb}`,
        verb === "reject" ? { reason } : {},
      );
      notice(verb === "approve" ? "Approved, and sent." : "Refused.", "good");
    } catch (problem) {
      failure(problem);
    }
    refresh();
  };
  const receipts = RECEIPTS(message),
    run = message.workflow;
  return h(
    "section",
    {
      class: `message ${current ? "this" : ""}`,
      "data-item": "",
      tabIndex: -1,
      "aria-label": `Message from ${message.from}`,
    },
    h(
      "div",
      { class: "row wrapping" },
      h("b", {}, message.from),
      h("span", { class: "dim" }, "→"),
      h("span", {}, message.to),
      badge(words(message.action), message.action === "execute" ? "warn" : ""),
      place(message),
      message.verified ? "" : badge("unverified", "warn", "The sender is only said, not known"),
      message.priority && message.priority !== "normal" && badge(message.priority, "warn"),
      deadlineBadge(message),
      h("span", { class: "grow" }),
      h(
        "a",
        { class: "dim small num", href: href("mail", [message.to, message.id]), title: message.id },
        clock(message.at),
      ),
    ),
    h(
      "pre",
      { class: "payload", tabIndex: 0, role: "region", "aria-label": `Text of ${message.from}` },
      message.payload,
    ),
    message.reason && h("p", { class: "remedy wrap" }, message.reason),
    attachment &&
      h(
        "div",
        { class: "row" },
        badge("attachment"),
        h("span", { class: "wrap" }, attachment.name),
        h("span", { class: "dim" }, bytes(attachment.bytes)),
        h("button", { type: "button", class: "quiet", onclick: preview }, "Preview"),
      ),
    shown,
    receipts.length ? h("ul", { class: "receipts", "aria-label": "Receipts" }, receipts) : "",
    run ? h("p", { class: "small" }, h("a", { href: href("workflows", [run]) }, `Workflow ${run}`)) : "",
    mayAct()
      ? h(
          "div",
          { class: "row" },
          message.action === "execute" && message.from !== known.overview.sender && OPEN.includes(message.place)
            ? [
                h("button", { type: "button", class: "main", onclick: () => decide("approve") }, "Approve"),
                h("button", { type: "button", onclick: () => decide("reject") }, "Refuse"),
              ]
            : "",
          h("button", { type: "button", onclick: () => write(message, refresh) }, "Reply"),
        )
      : "",
  );
}

function messagePage(view, to, id) {
  let gone = false;
  const crumbs = [["Mail", href("mail")]];
  const look = async () => {
    let message;
    try {
      message = await get(`/api/mail/messages/${name(to)}/${name(id)}`);
    } catch (problem) {
      return void (
        gone ||
        problem.status === 401 ||
        clear(view, head("Message", { crumbs }), h("div", { class: "card" }, empty(problem.message)))
      );
    }
    if (gone) return;
    const thread = message.thread.length ? message.thread : [message],
      threadId = typeof thread[0].thread === "string" ? thread[0].thread : "",
      subject = message.subject || thread[0].subject;
    clear(
      view,
      head(subject || (thread.length > 1 ? `Thread of ${thread.length}` : "Message"), {
        crumbs,
        note: subject && thread.length > 1 ? `Thread of ${thread.length}` : undefined,
        actions: [threadId && h("a", { href: href("mail", [], { thread: threadId }) }, "Receipts and thread")],
      }),
      h(
        "article",
        { class: "card flush", "aria-label": "Message" },
        thread.map((each) => messageCard(each, each.id === message.id && thread.length > 1, look)),
      ),
      h("p", { class: "dim small wrap" }, message.id),
    );
  };
  look();
  const end = on("mail", () => {
    if (!document.querySelector("dialog[open]")) look();
  });
  return () => {
    gone = true;
    end();
  };
}

function threadPage(view, id) {
  let gone = false;
  const crumbs = [
    ["Mail", href("mail")],
    ["Threads", href("mail", [], { tab: "threads" })],
  ];
  const look = async () => {
    let thread;
    try {
      thread = await get(`/api/mail/threads/${name(id)}`);
    } catch (problem) {
      return void (
        gone ||
        problem.status === 401 ||
        clear(view, head("Thread", { crumbs }), h("div", { class: "card" }, empty(problem.message)))
      );
    }
    if (gone) return;
    clear(
      view,
      head(thread.subject || `Thread of ${thread.messages.length}`, {
        crumbs,
        note: (thread.people || []).join(", "),
        actions: [
          thread.workflow &&
            h("a", { href: href("workflows", [thread.workflow.id || thread.workflow]) }, "Its workflow"),
        ],
      }),
      h(
        "article",
        { class: "card flush", "aria-label": "Thread" },
        thread.messages.map((each) => messageCard(each, false, look)),
      ),
    );
  };
  look();
  const end = on("mail", () => {
    if (!document.querySelector("dialog[open]")) look();
  });
  return () => {
    gone = true;
    end();
  };
}

async function write(answering, sent) {
  let about;
  try {
    about = await get("/api/mail/agents");
  } catch (problem) {
    return void failure(problem);
  }
  const options = [
    ...about.agents.map((agent) => [agent.name, agent.name]),
    ...about.teams.map((team) => [`team:${team.name}`, `team ${team.name}`]),
  ];
  const to = h(
    "select",
    { required: true },
    options.map(([value, text]) => h("option", { value, selected: answering && value === answering.from }, text)),
  );
  const action = h(
    "select",
    {},
    ACTIONS.map((word) => h("option", { value: word }, words(word))),
  );
  const priority = h(
    "select",
    {},
    ["normal", "low", "high", "urgent"].map((word) => h("option", { value: word }, word)),
  );
  const subject = h("input", {
    type: "text",
    maxLength: 200,
    value:
      answering && answering.subject
        ? /^re:/i.test(answering.subject)
          ? answering.subject
          : `Re: ${answering.subject}`
        : "",
  });
  const due = h("input", { type: "datetime-local" });
  const text = h("textarea", { rows: 8, required: true, "aria-label": "Message", placeholder: "Message" });
  const problemLine = h("p", { class: "bad-text", role: "alert" });
  const box = dialog(
    "Write a message",
    "write wide",
    h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          const body = { to: to.value, action: action.value, priority: priority.value, payload: text.value };
          if (subject.value.trim()) body.subject = subject.value.trim();
          if (due.value) body.ackBy = new Date(due.value).toISOString();
          if (answering) body.replyTo = answering.id;
          try {
            await post("/api/mail/send", body);
            box.close();
            notice("Sent.", "good");
            if (sent) sent();
          } catch (problem) {
            problemLine.textContent = [problem.message, problem.hint].filter(Boolean).join(" ");
          }
        },
      },
      h(
        "h2",
        {},
        answering
          ? `Reply to ${answering.from}`
          : `Write as ${known.overview.sender === "overseer" ? "the overseer" : known.overview.sender}`,
      ),
      h(
        "div",
        { class: "halves tight" },
        field("To", to),
        field("Action", action),
        field("Priority", priority),
        field("Answer due", due),
      ),
      field("Subject", subject),
      text,
      problemLine,
      h(
        "div",
        { class: "row end" },
        h("button", { type: "button", onclick: () => box.close() }, "Cancel"),
        h("button", { class: "main" }, "Send"),
      ),
    ),
  );
  text.focus();
}
