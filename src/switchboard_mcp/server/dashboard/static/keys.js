// The keyboard: one table of shortcuts, from which the help is made. Single keys can be turned off, as speech input needs it.

import { $, clear, h, stored } from "/static/dom.js";
import { dialog } from "/static/ui.js";

const CHORD_MS = 1500;
const OFF = "single-keys-off";
let after = "",
  pressedAt = 0;

export const visible = (node) => node.offsetParent !== null;

// j and k in lists, tables and whatever else is marked as an item; a virtual list moves by itself.
function move(view, step) {
  const active = document.activeElement,
    list = view.querySelector(".list");
  const items = [...view.querySelectorAll("[data-item]")].filter(visible);
  if (list && visible(list) && !items.length) return void list.focus();
  if (!items.length) return;
  const place = items.findIndex((item) => item === active || item.contains(active));
  const next = items[place < 0 ? 0 : Math.max(0, Math.min(items.length - 1, place + step))];
  (next.matches("a, button, summary, [tabindex]") ? next : next.querySelector("a, button, summary") || next).focus();
}

export function listen(views, go, toggleTheme, ready) {
  const view = $("view");
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
    if (event.key === "Escape" && typing) return void event.target.blur();
    if (
      typing ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      event.defaultPrevented ||
      document.querySelector("dialog[open]") ||
      !ready()
    )
      return;
    if (event.key === "Escape") return void view.dispatchEvent(new CustomEvent("up"));
    const inItems = event.target === view || event.target === document.body || event.target.closest("[data-item]");
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && inItems) {
      event.preventDefault();
      return void move(view, event.key === "ArrowDown" ? 1 : -1);
    }
    if (stored(OFF)) return;
    const chord = after === "g" && event.timeStamp - pressedAt < CHORD_MS;
    after = "";
    const target = chord ? views.find((each) => each.key === event.key) : views[event.key - 1];
    if (target) {
      event.preventDefault();
      go(target.id);
      return void view.focus({ preventScroll: true }); // Tab continues inside the view
    }
    if (event.key === "g") {
      after = "g";
      pressedAt = event.timeStamp;
    } else if (event.key === "/" && $("search")) {
      event.preventDefault();
      $("search").focus();
      $("search").select();
    } else if (event.key === "?") help(views);
    else if (event.key === "t") toggleTheme();
    else if (event.key === "j" || event.key === "k") {
      event.preventDefault();
      move(view, event.key === "j" ? 1 : -1);
    } else view.dispatchEvent(new CustomEvent("key", { detail: event.key }));
  });
}

export function help(views) {
  const keys = (...words) => words.map((word) => [h("kbd", {}, word), " "]);
  const single = h("input", {
    type: "checkbox",
    checked: !stored(OFF),
    onchange: () => stored(OFF, single.checked ? null : "yes"),
  });
  dialog(
    "Keyboard",
    "ask wide",
    h("h2", {}, "Keyboard"),
    h(
      "div",
      { class: "key-columns" },
      h(
        "dl",
        { class: "keys" },
        h("dt", {}, keys("/")),
        h("dd", {}, "Filter or search"),
        h("dt", {}, keys("j", "k"), "or ", keys("↓", "↑")),
        h("dd", {}, "Move in a list"),
        h("dt", {}, keys("Enter")),
        h("dd", {}, "Open what is selected"),
        h("dt", {}, keys("Esc")),
        h("dd", {}, "Close, or one level up"),
        h("dt", {}, keys("p")),
        h("dd", {}, "Pause or resume the list of calls"),
        h("dt", {}, keys("[", "]")),
        h("dd", {}, "Newer and older call, in its details"),
        h("dt", {}, keys("t")),
        h("dd", {}, "Dark or light"),
        h("dt", {}, keys("?")),
        h("dd", {}, "This list"),
      ),
      h(
        "dl",
        { class: "keys" },
        views.map((each, place) => [
          h("dt", {}, keys("g", each.key), "or ", keys(String(place + 1))),
          h("dd", {}, each.label),
        ]),
      ),
    ),
    h("label", { class: "row" }, single, "Single keys work"),
    h("form", { method: "dialog", class: "row end" }, h("button", { class: "main" }, "Close")),
  );
}
