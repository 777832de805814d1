// Creates DOM nodes. Text only ever becomes a text node: nothing here parses markup, so no content can inject any.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name in node && !name.includes("-") && node.namespaceURI !== SVG && name !== "list") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const $ = (id) => document.getElementById(id);
export const clear = (node, ...children) => (node.replaceChildren(...children.flat(Infinity).filter((c) => c || c === 0)), node);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const number = (value) => (value === undefined || value === null ? "–" : whole.format(value));
export const compact = (value) => (value < 10000 ? whole.format(value) : short.format(value));
export const ms = (value) => (value === undefined || value < 0 ? "–" : value < 10 ? `${value.toFixed(1)} ms` : value < 10000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`);
export const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many || one + "s"}`;

export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function clock(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "";
  const time = date.toLocaleTimeString("en-GB");
  return Date.now() - date.getTime() < 72000000 ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}

// A coloured label for states and outcomes; the text alone is sufficient.
export const badge = (text, kind, title) => h("span", { class: `badge ${kind || ""}`, title }, text);

const KINDS = {
  healthy: "good", ready: "good", idle: "good", ok: "good", allowed: "good", locked: "good", done: "good", finished: "good", online: "good", accepted: "good", approved: "good", started: "good",
  starting: "busy", probation: "warn", logged: "warn", told: "warn", running: "busy", stopped: "idle", cancelled: "idle", configured: "idle", disabled: "idle", input_required: "busy", completed: "good", skipped: "warn", lapsed: "warn", claimed: "busy", working: "busy",
  unhealthy: "bad", quarantined: "bad", failed: "bad", backoff: "bad", rejected: "bad", deadletter: "bad", blocked: "bad", error: "bad", absent: "bad",
};
export const state = (word) => badge(word, KINDS[word] || "");
export const outcome = (word) => badge(word, KINDS[word] || (word ? "bad" : ""));

let hiding = 0;
export function notice(text, kind = "bad") {
  const box = $("notice");
  clear(box, h("div", { class: `toast ${kind}` }, text));
  clearTimeout(hiding);
  hiding = setTimeout(() => clear(box), kind === "good" ? 3500 : 9000);
}

// Shows the members of one entry of a list until Esc or Close is pressed.
export function details(title, pairs) {
  const box = h("dialog", { "aria-label": title, class: "ask" }, h("h2", { class: "wrap" }, title),
    h("dl", { class: "facts" }, pairs.filter(([, value]) => value).map(([label, value]) => [h("dt", {}, label), h("dd", { class: "wrap" }, value)])),
    h("form", { method: "dialog", class: "row end" }, h("button", { class: "main" }, "Close")));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

// Asks for confirmation before an irreversible action. Resolves to the text that was entered, or null.
export function ask(title, text, verb, field) {
  return new Promise((resolve) => {
    const input = field && h("textarea", { rows: 3, "aria-label": field, placeholder: field });
    const box = h("dialog", { "aria-label": title, class: "ask" },
      h("h2", {}, title), h("p", { class: "pre" }, text), input,
      h("div", { class: "row end" },
        h("button", { type: "button", onclick: () => end(null) }, "Cancel"),
        h("button", { type: "button", class: "main", onclick: () => end(input ? input.value : "yes") }, verb)));
    const end = (answer) => { box.close(); box.remove(); resolve(answer); };
    box.addEventListener("cancel", () => end(null));
    document.body.append(box);
    box.showModal();
  });
}
