// Components that every view uses: icons, badges, panels, headings, dialogs, notices, tabs.

import { $, clear, h, s } from "/static/dom.js";

const PATHS = {
  overview: "M2.5 9.5h4v4h-4zM2.5 2.5h4v4h-4zM9.5 2.5h4v4h-4zM9.5 9.5h4v4h-4z",
  calls: "M2 5h10.5M9.5 2l3 3-3 3M14 11H3.5M6.5 8l-3 3 3 3",
  sessions: "M2 3h12v8H2zM5.5 14h5M8 11v3",
  children: "M8 1.8l5.5 3v6.4L8 14.2l-5.5-3V4.8zM2.5 4.8L8 8l5.5-3.2M8 8v6.2",
  approvals: "M8 1.8l5 2v4c0 3-2 5.3-5 6.4-3-1.1-5-3.4-5-6.4v-4zM5.5 8l1.8 1.8L10.7 6.4",
  mail: "M2 3.5h12v9H2zM2 4l6 5 6-5",
  workflows:
    "M4 3.5v9M4 8h4a3 3 0 0 0 3-3M2.5 3.5a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0M2.5 12.5a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0M9.5 3.5a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0",
  audit: "M4 1.8h8v12.4H4zM6.3 5h3.4M6.3 8h3.4M6.3 11h2",
  bad: "M8 1.8L14.5 13.5h-13zM8 6v3.5M8 11.3v.4",
  warn: "M8 1.8L14.5 13.5h-13zM8 6v3.5M8 11.3v.4",
  busy: "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M8 5v3.2l2 1.3",
  good: "M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M5.3 8.2l1.9 1.9 3.6-4",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
};
export const icon = (name, kind) =>
  s(
    "svg",
    { class: `icon ${kind || ""}`, viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
    s("path", { d: PATHS[name] || PATHS.busy }),
  );

// A coloured label for states and outcomes; the text alone is sufficient.
export const badge = (text, kind, title) => h("span", { class: `badge ${kind || ""}`, title }, text);

const KINDS = {
  healthy: "good",
  ready: "good",
  idle: "good",
  ok: "good",
  allowed: "good",
  locked: "good",
  done: "good",
  finished: "good",
  online: "good",
  accepted: "good",
  approved: "good",
  started: "good",
  completed: "good",
  delivered: "good",
  read: "good",
  up: "good",
  connected: "good",
  leader: "good",
  on: "good",
  starting: "busy",
  running: "busy",
  claimed: "busy",
  working: "busy",
  input_required: "busy",
  waiting: "busy",
  inbox: "busy",
  probation: "warn",
  logged: "warn",
  told: "warn",
  skipped: "warn",
  lapsed: "warn",
  degraded: "warn",
  asked: "warn",
  gate_asked: "warn",
  gate_allowed: "good",
  gate_waiting: "warn",
  program_asked: "warn",
  late: "warn",
  stopped: "idle",
  cancelled: "idle",
  configured: "idle",
  disabled: "idle",
  untried: "idle",
  off: "idle",
  archive: "idle",
  unhealthy: "bad",
  quarantined: "bad",
  failed: "bad",
  backoff: "bad",
  rejected: "bad",
  denied: "bad",
  deadletter: "bad",
  blocked: "bad",
  error: "bad",
  absent: "bad",
  down: "bad",
  expired: "bad",
};
export const kindOf = (word) => KINDS[word] || "";
// A dot and a word: calmer than a badge where every row has one.
export const dot = (word, kind, text) => h("span", { class: `dot ${kind || kindOf(word) || "idle"}` }, text || word);
export const state = (word) => dot(word);
export const outcome = (word) => dot(word || "–", KINDS[word] || (word ? "bad" : "idle"));
// Failed in the sense of the statistics: neither a cancelled call nor one that needs input has failed.
export const failed = (word) =>
  ![
    "ok",
    "allowed",
    "cancelled",
    "input_required",
    "approved",
    "accepted",
    "gate_asked",
    "gate_allowed",
    "gate_waiting",
    "",
  ].includes(word || "");

export const panel = (title, attributes, ...content) =>
  h(
    "section",
    { ...attributes, class: `card ${(attributes && attributes.class) || ""}` },
    title &&
      h("div", { class: "card-head" }, typeof title === "string" ? h("h3", { class: "grow cut" }, title) : title),
    ...content,
  );
export const empty = (text) => h("p", { class: "empty" }, text);
export const facts = (pairs, kind) =>
  h(
    "dl",
    { class: `facts ${kind || ""}` },
    pairs
      .filter((pair) => pair && pair[1] !== undefined && pair[1] !== null && pair[1] !== "" && pair[1] !== false)
      .map(([label, value]) => [h("dt", {}, label), h("dd", { class: "wrap" }, value)]),
  );

// The head of a view: where one is, and what one can do here.
export function head(title, { crumbs = [], actions = [], note } = {}) {
  return h(
    "div",
    { class: "head" },
    h(
      "div",
      { class: "grow" },
      crumbs.length
        ? h(
            "nav",
            { class: "crumbs", "aria-label": "Up" },
            crumbs.map(([text, to]) => [h("a", { href: to }, text), h("span", { "aria-hidden": "true" }, "/")]),
          )
        : "",
      h("h2", { class: "wrap", tabIndex: -1 }, title),
      note && h("p", { class: "dim small" }, note),
    ),
    h("div", { class: "row wrapping head-actions" }, actions),
  );
}

// Choices of which one is on. `set(value)` draws; the choice is told to `chosen`.
export function segments(label, choices, value, chosen) {
  const buttons = choices.map(([each, text]) =>
    h("button", { type: "button", "aria-pressed": String(each === value), onclick: () => set(each, true) }, text),
  );
  const set = (next, by) => {
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(choices[place][0] === next)));
    if (by) chosen(next);
  };
  return h("div", { class: "seg", role: "group", "aria-label": label }, buttons);
}

// A search that starts when the typing pauses; not any more once the view is left.
export function searchBox(label, value, search, waitMs = 250) {
  let timer = 0;
  const box = h("input", {
    type: "search",
    id: "search",
    value,
    placeholder: label,
    "aria-label": label,
    oninput: () => {
      const typedAt = location.hash;
      clearTimeout(timer);
      // A search that comes due after the user has opened another page must not change its address.
      timer = setTimeout(() => box.isConnected && location.hash === typedAt && search(box.value), waitMs);
    },
  });
  return box;
}

function choiceBox(label, value, choices, chosen) {
  const options = choices.map(([each, text]) => h("option", { value: each, selected: each === value }, text));
  return h("select", { "aria-label": label, onchange: (event) => chosen(event.currentTarget.value) }, options);
}

// The search and choice boxes of a list. Each sets its member of `wanted`; then the list is read `again`.
export function filterBoxes(wanted, again) {
  const set = (key) => (value) => {
    wanted[key] = value;
    again();
  };
  return {
    search: (label) => searchBox(label, wanted.q, set("q")),
    choice: (label, key, choices) => choiceBox(label, wanted[key], choices, set(key)),
  };
}

// Links that look like tabs, since each has an address of its own.
export function tabs(label, choices, current) {
  const node = h(
    "nav",
    { class: "tabs", "aria-label": label },
    choices.map(([id, text, to]) => h("a", { href: to, "aria-current": id === current ? "page" : undefined }, text)),
  );
  // A narrow page has no room for all of them.
  requestAnimationFrame(() => {
    const shown = node.querySelector("[aria-current]");
    if (shown) node.scrollLeft = shown.offsetLeft - node.offsetLeft - 16;
  });
  return node;
}

// A control with its label and a note. The note describes it and is no part of its name.
let fields = 0;
export function field(label, control, note) {
  const id = `field${++fields}`;
  control.id = id;
  if (note) control.setAttribute("aria-describedby", `${id}-note`);
  return h(
    "div",
    { class: "field" },
    h("label", { htmlFor: id }, label),
    control,
    note && h("span", { class: "dim small wrap", id: `${id}-note` }, note),
  );
}

export function copyButton(text, label = "Copy") {
  return h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: async () => {
        const words = typeof text === "function" ? text() : text;
        try {
          await navigator.clipboard.writeText(words);
          notice("Copied.", "good");
        } catch {
          details("Copy this", [
            ["Text", h("textarea", { rows: 6, readOnly: true, "aria-label": "Text to copy" }, words)],
          ]);
        }
      },
    },
    icon("copy"),
    label,
  );
}

let hiding = 0;
export function notice(text, kind = "bad") {
  const box = $("notice");
  clear(box, h("div", { class: `toast ${kind}` }, text));
  clearTimeout(hiding);
  hiding = setTimeout(() => clear(box), kind === "good" ? 3500 : 9000);
}
export const failure = (problem) =>
  problem.status === 401 ? undefined : notice([problem.message, problem.hint].filter(Boolean).join(" "));

// Opens a dialog; the focus returns to where it was.
export function dialog(title, kind, ...content) {
  const before = document.activeElement;
  const box = h("dialog", { "aria-label": title, class: kind || "ask" }, content);
  box.addEventListener("close", () => {
    box.remove();
    // The browser has returned the focus already, and the next key may have moved it since.
    if (document.activeElement === document.body && before?.isConnected) before.focus();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

// Shows the members of one entry of a list until Esc or Close is pressed.
export function details(title, pairs, ...more) {
  dialog(
    title,
    "ask",
    h("h2", { class: "wrap" }, title),
    facts(pairs),
    more,
    h("form", { method: "dialog", class: "row end" }, h("button", { class: "main" }, "Close")),
  );
}

// Asks for confirmation before an action that cannot be undone. Resolves to the text that was entered, or null.
// `content` is a text, or nodes in a wider dialog.
export function ask(title, content, verb, entry, kind = "main") {
  return new Promise((resolve) => {
    let answer = null;
    const input = entry && h("textarea", { rows: 3, "aria-label": entry, placeholder: entry });
    const isText = typeof content === "string";
    const box = dialog(
      title,
      isText ? "ask" : "ask wide",
      h("h2", { class: "wrap" }, title),
      isText ? h("p", { class: "pre" }, content) : content,
      input,
      h(
        "div",
        { class: "row end" },
        h("button", { type: "button", onclick: () => box.close() }, "Cancel"),
        h(
          "button",
          {
            type: "button",
            class: kind,
            onclick: () => {
              answer = input ? input.value : "yes";
              box.close();
            },
          },
          verb,
        ),
      ),
    );
    box.addEventListener("close", () => resolve(answer));
  });
}
