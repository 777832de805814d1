// The frame: login, navigation, keyboard shortcuts, dark and light theme.

import { approvalsView } from "/static/approvals.js";
import { auditView } from "/static/audit.js";
import { callsView } from "/static/calls.js";
import { $, clear, h, notice } from "/static/dom.js";
import { mailView, workflowsView } from "/static/mail.js";
import { overviewView } from "/static/overview.js";
import { connect, disconnect, forget, known, name, on, post, request } from "/static/server.js";
import { suitesView } from "/static/suites.js";

// Each view: its id in the address, its title, and the function that draws it. That function returns one to leave it.
const VIEWS = [["overview", "Overview", overviewView], ["suites", "Suites", suitesView], ["calls", "Calls", callsView], ["audit", "Audit", auditView], ["mail", "Mail", mailView], ["workflows", "Workflows", workflowsView], ["approvals", "Approvals", approvalsView]];
const view = $("view");
let leave = () => {};

function go(id, chosen) {
  location.hash = chosen ? `${id}/${chosen.split("/").map(name).join("/")}` : id;
}

function show() {
  const [id, ...rest] = location.hash.slice(1).split("/");
  const found = VIEWS.find(([word]) => word === id) || VIEWS[0];
  leave();
  $("views").querySelectorAll("a").forEach((link) => (link.dataset.view === found[0] ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current")));
  document.title = `${found[1]} · Switchboard`;
  leave = found[2](view, go, rest.map(decodeURIComponent).join("/")) || (() => {});
}

function drawNavigation() {
  clear($("views"), VIEWS.map(([id, label], place) => h("a", { href: `#${id}`, "data-view": id, "aria-keyshortcuts": String(place + 1) }, label)));
  $("last-view").textContent = String(VIEWS.length);
}

function login(reason) {
  disconnect();
  forget();
  leave();
  leave = () => {};
  $("logout").hidden = true;
  clear($("views"));
  $("line").hidden = true;
  const token = h("input", { type: "password", required: true, autocomplete: "off", spellcheck: false, "aria-label": "Token", placeholder: "Token" });
  const problem = h("p", { class: "bad-text", role: "alert" }, reason || "");
  clear(view, h("form", { class: "card login", onsubmit: async (event) => {
    event.preventDefault();
    try { await post("/api/login", { token: token.value.trim() }); await begin(); } catch (refusal) { problem.textContent = refusal.message; token.select(); }
  } },
    h("h2", {}, "Log in"),
    h("p", {}, "Run ", h("code", {}, "switchboard dashboard"), " in the workspace, or paste the token from ", h("code", {}, ".switchboard/auth_token"), "."),
    token, problem, h("button", { class: "main" }, "Log in")));
  token.focus();
}

async function begin() {
  await connect();
  $("logout").hidden = false;
  $("line").hidden = false;
  drawNavigation();
  show();
  performance.mark("shown");
}

function theme(next) {
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
}
function toggleTheme() {
  const dark = (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  theme(dark ? "light" : "dark");
  try { localStorage.setItem("theme", dark ? "light" : "dark"); } catch { /* then it is asked for again */ }
}

function press(event) {
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "Escape" && typing && event.target.type === "search") return void event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || !known.overview) return;
  if (event.key >= "1" && event.key <= String(VIEWS.length)) {
    go(VIEWS[event.key - 1][0]);
    return void view.focus({ preventScroll: true }); // Tab continues inside the view
  }
  if (event.key === "/" && $("search")) { event.preventDefault(); $("search").focus(); }
  else if (event.key === "?") $("keys").showModal();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "j" || event.key === "k" || ((event.key === "ArrowDown" || event.key === "ArrowUp") && (event.target === view || event.target === document.body))) {
    const first = view.querySelector(".list, tbody button.link");
    if (!first || event.target.closest(".list, tbody")) return;
    event.preventDefault();
    first.focus();
  }
}

on("server", () => {
  const link = $("views").querySelector("[data-view=approvals]");
  const waiting = known.overview && known.overview.approvals;
  if (link) link.textContent = waiting ? `Approvals (${waiting})` : "Approvals";
});
on("line", () => {
  $("line").textContent = known.line;
  $("line").dataset.line = known.line;
  view.classList.toggle("stale", known.line === "lost"); // these are the last numbers, not the current ones
});
on("out", () => login(known.overview ? "The server has restarted, or your login has expired. Please log in again." : ""));
$("theme").addEventListener("click", toggleTheme);
$("help").addEventListener("click", () => $("keys").showModal());
$("logout").addEventListener("click", async () => {
  await post("/api/logout").catch(() => {});
  login();
});
document.addEventListener("keydown", press);
window.addEventListener("hashchange", () => known.overview && $("logout").hidden === false && show());
try { theme(localStorage.getItem("theme")); } catch { /* as the system says */ }

// The one-time link: its code is in the fragment, and removed from the address bar before anything else.
const code = location.hash.slice(1);
if (code.length >= 40 && !code.includes("/")) {
  history.replaceState(null, "", "/");
  try { await request("POST", "/api/login", { code }); } catch (problem) { login(problem.message); }
}
if (!view.firstChild) {
  try { await begin(); } catch (problem) { if (problem.status === 401) login(); else { login(); notice(problem.message); } }
}
