// The frame: login, navigation, theme, and what the page says about its connection.

import { $, clear, h, span, stored, time } from "/static/dom.js";
import { help, listen } from "/static/keys.js";
import { overviewView } from "/static/overview.js";
import { go, href, parse } from "/static/router.js";
import { connect, disconnect, forget, known, logIn, lose, on, post, reconnect } from "/static/server.js";
import { badge, icon, notice } from "/static/ui.js";

// A view draws itself and returns a function to leave it, or an object with `leave` and `update(route)`, which it gets when only its own part of the address changes.
// All but the first are loaded once the page is shown.
const VIEWS = [
  { id: "overview", label: "Overview", key: "o", draw: overviewView },
  { id: "calls", label: "Calls", key: "c", load: async () => (await import("/static/calls.js")).callsView },
  { id: "sessions", label: "Sessions", key: "s", load: async () => (await import("/static/sessions.js")).sessionsView },
  { id: "children", label: "Children", key: "h", load: async () => (await import("/static/children.js")).childrenView },
  {
    id: "approvals",
    label: "Approvals",
    key: "a",
    load: async () => (await import("/static/approvals.js")).approvalsView,
  },
  { id: "mail", label: "Mail", key: "m", load: async () => (await import("/static/mail.js")).mailView },
  {
    id: "workflows",
    label: "Workflows",
    key: "w",
    load: async () => (await import("/static/workflows.js")).workflowsView,
  },
  { id: "audit", label: "Audit", key: "l", load: async () => (await import("/static/audit.js")).auditView },
];
// Addresses of before.
const ALIASES = { suites: "children" };
// From here on, a difference of clocks is worth a word.
const SKEW_MS = 5000;
const view = $("view");
const tabs = "BroadcastChannel" in window ? new BroadcastChannel("switchboard") : { postMessage() {} };
let current = null,
  turn = 0,
  upgraded = "",
  loggedIn = false;

async function show() {
  const route = parse(location.hash);
  route.view = ALIASES[route.view] || route.view;
  const found = VIEWS.find(({ id }) => id === route.view) || VIEWS[0];
  if (upgraded && !unsaved()) return void location.reload();
  if (current && current.id === found.id && current.update) return void current.update(route);
  const mine = ++turn;
  found.draw = found.draw || (await found.load().catch(() => null));
  if (mine !== turn || !loggedIn) return;
  if (!found.draw) return void notice("This view cannot be loaded. The server cannot be reached.");
  if (current) current.leave();
  current = null;
  $("views")
    .querySelectorAll("a")
    .forEach((link) =>
      link.dataset.view === found.id ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current"),
    );
  title(found.label);
  window.scrollTo(0, 0);
  const drawn = found.draw(view, route, title) || (() => {});
  current = { id: found.id, ...(typeof drawn === "function" ? { leave: drawn } : drawn) };
}

const title = (text) => {
  document.title = `${text} · Switchboard`;
};
// What somebody has typed but not sent.
const unsaved = () =>
  Boolean(
    document.querySelector("dialog[open]") ||
    [...view.querySelectorAll("textarea, form input:not([type=search])")].some(
      (field) => field.value !== field.defaultValue,
    ),
  );

function drawNavigation() {
  clear(
    $("views"),
    VIEWS.map(({ id, label, key }, place) =>
      h(
        "a",
        { href: href(id), "data-view": id, "aria-keyshortcuts": String(place + 1), title: `${label} (g ${key})` },
        icon(id),
        h("span", { class: "label" }, label),
        h("span", { class: "count" }),
      ),
    ),
  );
  drawCounts();
}

// Failures of children that wait for a decision.
const UNDECIDED = ["child_not_allowed", "launch_refused", "child_not_locked"];

function drawCounts() {
  const undecided = [...known.children.values()].filter(
    (row) => row.drift || (row.trouble && UNDECIDED.includes(row.trouble.code)),
  );
  const calls = (known.overview && known.overview.approvals) || 0,
    waiting = calls + new Set(undecided.map((row) => row.child)).size,
    count = $("views").querySelector("[data-view=approvals] .count");
  if (!count || count.dataset.count === String(waiting)) return;
  count.dataset.count = String(waiting);
  clear(count, waiting ? [badge(String(waiting), "warn"), h("span", { class: "hidden" }, " waiting")] : "");
}

function leave() {
  turn++;
  if (current) current.leave();
  current = null;
}

function login(reason) {
  disconnect();
  forget();
  leave();
  loggedIn = false;
  document.body.classList.add("out");
  $("logout").hidden = true;
  clear($("views"));
  clear($("banner"));
  $("line").hidden = true;
  const token = h("input", {
    type: "password",
    required: true,
    autocomplete: "off",
    spellcheck: false,
    "aria-label": "Token",
    placeholder: "Token",
  });
  const problem = h("p", { class: "bad-text", role: "alert" }, reason || "");
  clear(
    view,
    h(
      "form",
      {
        class: "card login",
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            await logIn({ token: token.value.trim() });
            await begin();
            tabs.postMessage("in");
          } catch (refusal) {
            problem.textContent = refusal.message;
            token.select();
          }
        },
      },
      h("h2", {}, "Log in"),
      h(
        "p",
        {},
        "Run ",
        h("code", {}, "switchboard dashboard"),
        " in the workspace, or paste the token from ",
        h("code", {}, ".switchboard/auth_token"),
        ".",
      ),
      token,
      problem,
      h("button", { class: "main" }, "Log in"),
    ),
  );
  token.focus();
}

async function begin() {
  await connect();
  loggedIn = true;
  document.body.classList.remove("out");
  $("logout").hidden = false;
  $("line").hidden = false;
  drawNavigation();
  await show();
  drawBanner();
  performance.mark("shown");
}

const isDark = () =>
  (document.documentElement.dataset.theme ||
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function theme(next) {
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
}
function toggleTheme() {
  theme(isDark() ? "light" : "dark");
  stored("theme", document.documentElement.dataset.theme);
}

// One line above the view: what is wrong with what is shown, and what happens about it.
function drawBanner() {
  const box = $("banner");
  let kind = "warn",
    text = "",
    action = "";
  if (known.line === "lost") {
    kind = "bad";
    const since = `The last figures are of ${time(new Date(known.lostAt))}.`;
    text = known.refused
      ? `The server sends no news to this page: too many are open. Close one. ${since}`
      : navigator.onLine === false
        ? `This device is offline. ${since}`
        : `The server cannot be reached. It may be restarting. ${since} Trying again every 2 seconds.`;
    action = h("button", { type: "button", onclick: reconnect }, "Try now");
  } else if (upgraded) {
    text = `Switchboard was upgraded to ${upgraded}. This page is of the version before; it reloads with the next step.`;
    action = h("button", { type: "button", onclick: () => location.reload() }, "Reload");
  } else if (known.overview && Math.abs(known.skew) > SKEW_MS) {
    kind = "info";
    text = `The clock of this device is ${span(Math.abs(known.skew))} ${known.skew > 0 ? "ahead of" : "behind"} the server's. Ages are counted with the server's clock.`;
  }
  if (box.dataset.text === text) return;
  box.dataset.text = text;
  clear(box, text ? h("div", { class: `banner ${kind}` }, h("span", { class: "grow" }, text), action) : "");
}

on("server", () => {
  drawCounts();
  drawBanner();
});
on("children", drawCounts);
on("line", () => {
  $("line").textContent = known.line;
  $("line").dataset.line = known.line;
  view.classList.toggle("stale", known.line === "lost"); // these are the last numbers, not the current ones
  drawBanner();
});
on("upgraded", (version) => {
  upgraded = version;
  drawBanner();
});
on("restarted", () => notice("The server has restarted. Figures count from its start.", "good"));
on("out", () => {
  if (loggedIn || !view.firstChild)
    login(
      loggedIn
        ? "The server has restarted, or your login has expired. Please log in again. A login in another tab counts too."
        : "",
    );
});
$("theme").addEventListener("click", toggleTheme);
$("help").addEventListener("click", () => help(VIEWS));
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
$("logout").addEventListener("click", async () => {
  await post("/api/logout").catch(() => {});
  login();
  tabs.postMessage("out");
});
// Another tab has logged in or out: the cookie and the key are the same.
tabs.onmessage = ({ data }) => {
  if (data === "in" && !loggedIn) begin().catch(() => {});
  else if (data === "out" && loggedIn) login("You have logged out in another tab.");
};
window.addEventListener("online", reconnect);
window.addEventListener("offline", () => {
  lose();
  drawBanner();
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && reconnect());
listen(VIEWS, go, toggleTheme, () => loggedIn);
// A link of `switchboard dashboard` that is pasted into the tab that asks for it changes the fragment only.
window.addEventListener("hashchange", async ({ oldURL }) => {
  if (!isCode()) return loggedIn && show();
  if (await useCode(new URL(oldURL).hash)) await begin().catch((problem) => login(problem.message));
});
theme(stored("theme"));

// The one-time link: its code is in the fragment, and removed from the address bar before anything else.
function isCode() {
  return location.hash.length > 40 && !/[/?]/.test(location.hash);
}
// Log in with the code of the address, and go on at the view that was there before.
async function useCode(before) {
  const code = location.hash.slice(1);
  history.replaceState(null, "", `/${before}`);
  if (loggedIn) return false;
  try {
    await logIn({ code });
    tabs.postMessage("in");
    return true;
  } catch (problem) {
    login(problem.message);
    return false;
  }
}
if (isCode()) await useCode("");
// A server that is just starting or stopping answers soon; without a login, the form is there already.
async function enter() {
  try {
    await begin();
  } catch (problem) {
    if (problem.status === 401) return;
    clear(
      view,
      h(
        "div",
        { class: "card login" },
        h("h2", {}, "Not reachable"),
        h("p", { role: "status" }, `${problem.message} Trying again every 2 seconds.`),
      ),
    );
    setTimeout(enter, 2000);
  }
}
if (!view.firstChild) await enter();
