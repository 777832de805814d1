// Shows a JSON value as a tree that folds and can be searched. Text that is no JSON is shown as it is.

import { bytes, clear, h, plural } from "/static/dom.js";
import { copyButton } from "/static/ui.js";

// Deeper or larger parts start folded, and a part is drawn when it is unfolded: a result may have megabytes.
const SMALL = 4000,
  OPEN_DEPTH = 2,
  OPEN_ENTRIES = 40,
  MOST_ENTRIES = 500,
  LONG_TEXT = 2000;

const marked = (text, query) => {
  if (!query) return [text];
  const parts = [],
    lower = text.toLowerCase();
  let at = 0;
  for (let found = lower.indexOf(query); found >= 0 && parts.length < 400; found = lower.indexOf(query, at)) {
    parts.push(text.slice(at, found), h("mark", {}, text.slice(found, found + query.length)));
    at = found + query.length;
  }
  return [...parts, text.slice(at)];
};

const holds = (value, query) =>
  value !== null && typeof value === "object"
    ? Object.entries(value).some(
        ([key, each]) => (!Array.isArray(value) && key.toLowerCase().includes(query)) || holds(each, query),
      )
    : String(value).toLowerCase().includes(query);

function leaf(value, query) {
  if (typeof value !== "string") return h("span", { class: "value" }, marked(String(value), query));
  if (value.length <= LONG_TEXT || query) return h("span", { class: "text" }, '"', marked(value, query), '"');
  const rest = h(
    "button",
    { type: "button", class: "link", onclick: () => rest.replaceWith(value.slice(LONG_TEXT)) },
    ` … ${value.length - LONG_TEXT} more characters`,
  );
  return h("span", { class: "text" }, '"', value.slice(0, LONG_TEXT), rest, '"');
}

function node(key, value, depth, query, small) {
  const label = key === null ? "" : [h("span", { class: "key" }, marked(String(key), query)), ": "];
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, label, leaf(value, query));
  const entries = Object.entries(value),
    many = Array.isArray(value);
  if (!entries.length) return h("div", { class: "leaf" }, label, many ? "[]" : "{}");
  const box = h(
    "details",
    {},
    h(
      "summary",
      {},
      label,
      h(
        "span",
        { class: "dim" },
        many ? `[${plural(entries.length, "entry", "entries")}]` : `{${plural(entries.length, "member")}}`,
      ),
    ),
  );
  let drawn = false;
  const draw = () => {
    if (drawn || !box.open) return;
    drawn = true;
    const shown = query
      ? entries.filter(([each, inner]) => (!many && each.toLowerCase().includes(query)) || holds(inner, query))
      : entries;
    box.append(...shown.slice(0, MOST_ENTRIES).map(([each, inner]) => node(each, inner, depth + 1, query, small)));
    if (shown.length > MOST_ENTRIES) box.append(h("p", { class: "dim" }, `${shown.length - MOST_ENTRIES} more`));
  };
  box.open = query || small ? depth < 12 : depth < OPEN_DEPTH && entries.length <= OPEN_ENTRIES;
  box.addEventListener("toggle", draw);
  draw();
  return box;
}

function parsed(text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return null;
  }
}

// The text of results is often JSON itself: shown as such.
function widen(value) {
  if (value && value.jsonrpc && (value.result || value.error)) return widen(value.result || value.error); // the envelope says nothing
  if (!value || !Array.isArray(value.content)) return value;
  return {
    ...value,
    content: value.content.map((block) => {
      const inner = block && block.type === "text" && /^\s*[[{]/.test(block.text || "") ? parsed(block.text) : null;
      return inner ? { ...block, text: inner.value } : block;
    }),
  };
}

// body: { text, bytes, cut } as the API has it, or any value.
export function jsonPanel(title, body) {
  const text = typeof body.text === "string" ? body.text : JSON.stringify(body.value);
  const found = parsed(text),
    box = h("div", { class: "json", tabIndex: 0, role: "region", "aria-label": title });
  const draw = (query) =>
    clear(
      box,
      found
        ? node(null, widen(found.value), 0, query, text.length < SMALL)
        : h("span", { class: "pre" }, marked(text, query)),
    );
  let typing = 0;
  const search = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": `Search in ${title.toLowerCase()}`,
    oninput: () => {
      clearTimeout(typing);
      typing = setTimeout(() => draw(search.value.toLowerCase()), 120);
    },
  });
  draw("");
  return h(
    "section",
    { class: "card" },
    h(
      "div",
      { class: "card-head wrapping" },
      h("h3", {}, title),
      h(
        "span",
        { class: "dim small" },
        [bytes(body.bytes ?? text.length), body.cut ? "cut" : ""].filter(Boolean).join(", "),
      ),
      h(
        "div",
        { class: "row body-tools" },
        search,
        copyButton(() => (found ? JSON.stringify(found.value, null, 2) : text)),
      ),
    ),
    box,
  );
}
