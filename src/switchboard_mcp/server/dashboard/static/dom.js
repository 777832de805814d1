// Creates DOM nodes and formats values. Text only ever becomes a text node: nothing here parses markup, so no content can inject any.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name in node && !name.includes("-") && node.namespaceURI !== SVG && name !== "list" && name !== "form")
      node[name] = value;
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
export const clear = (node, ...children) => (
  node.replaceChildren(...children.flat(Infinity).filter((c) => c || c === 0)),
  node
);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const number = (value) => (value === undefined || value === null ? "–" : whole.format(value));
export const compact = (value) =>
  value === undefined || value === null ? "–" : Math.abs(value) < 10000 ? whole.format(value) : short.format(value);
export const ms = (value) =>
  value === undefined || value === null || value < 0
    ? "–"
    : value < 10
      ? `${value.toFixed(1)} ms`
      : value < 10000
        ? `${Math.round(value)} ms`
        : value < 120000
          ? `${(value / 1000).toFixed(1)} s`
          : span(value);
export const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many || one + "s"}`;
export const percent = (part, all) =>
  all ? `${((100 * part) / all).toFixed(part && (100 * part) / all < 10 ? 1 : 0)} %` : "–";

export function bytes(value) {
  if (value === undefined || value === null) return "–";
  if (value < 1024) return `${value} B`;
  if (value < 1048576) return `${(value / 1024).toFixed(value < 10240 ? 1 : 0)} KiB`;
  return value < 1073741824 ? `${number(Math.round(value / 1048576))} MiB` : `${(value / 1073741824).toFixed(1)} GiB`;
}

export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// Intl is slow to start and toLocaleTimeString is slow per row: a list formats hundreds of times a second.
const two = (value) => (value < 10 ? `0${value}` : String(value));
export const time = (date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
export const day = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;

export function clock(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "";
  return Math.abs(Date.now() - date.getTime()) < 72000000 ? time(date) : `${day(date)} ${time(date)}`;
}
// Whole, with milliseconds: for details.
export function moment(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime())
    ? ""
    : `${day(date)} ${time(date)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

// Calls at most once per frame, and not at all while the tab is in the background.
export function throttle(draw) {
  let waiting = false;
  const run = () => {
    waiting = false;
    draw();
  };
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(run);
  };
}

// What the browser keeps for this address, port included.
export const stored = (key, value) => {
  try {
    if (value === undefined) return localStorage.getItem(key);
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    /* then it holds for this page */
  }
  return null;
};
