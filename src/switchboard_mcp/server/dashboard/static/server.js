// The connection to the server: requests, the event stream, and the state received so far.

import { stored } from "/static/dom.js";
import { name } from "/static/router.js";

export { name };
export const known = {
  overview: null,
  children: new Map(),
  calls: [],
  points: [],
  history: [],
  line: "connecting",
  skew: 0,
};
const listeners = new Map();
let source = null,
  again = 0,
  watching = 0,
  heardAt = 0,
  version = "";
// Between attempts to reach a server that has gone.
const RETRY_MS = 2000,
  REFUSED_MS = 15000;
// A connection that was cut without a word looks like a silent one: after this long without an event, ask.
const SILENT_MS = 20000,
  ANSWER_MS = 15000;
const MAX_CALLS = 10000;
// A page may stay open for weeks.
const MAX_SAVINGS = 1200,
  MAX_HISTORY = 1500;
// The list of calls fetches older ones while it is scrolled.
const FIRST_CALLS = 200;
// Browsers send a cookie to every port of a host. The key is kept for this port alone, and nothing is served without it.
const KEY = "page-key";
let unstored = "";
const pageKey = () => stored(KEY) || unstored;

export class Problem extends Error {
  constructor(status, error) {
    super(error.message || `HTTP ${status}`);
    this.status = status;
    this.hint = error.hint || "";
    this.code = error.code || "";
  }
}

export async function request(method, path, body, timeout) {
  const key = pageKey();
  const options = { method, credentials: "same-origin", cache: "no-store", headers: { "X-Page-Key": key } };
  if (timeout) options.signal = AbortSignal.timeout(timeout);
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Problem(0, { message: "The server cannot be reached." });
  }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/api/login") {
      // Another tab has logged in since: its key counts for this one too.
      if (pageKey() !== key) return request(method, path, body, timeout);
      emit("out");
    }
    throw new Problem(answer.status, data.error || {});
  }
  return data;
}

export const get = (path, query, timeout) => {
  const filled = Object.entries(query || {}).filter(
    ([, value]) => value !== "" && value !== undefined && value !== null && value !== 0,
  );
  return request("GET", path + (filled.length ? `?${new URLSearchParams(filled)}` : ""), undefined, timeout);
};
export const post = (path, body = {}) => request("POST", path, body);
export async function logIn(credentials) {
  const login = await post("/api/login", credentials);
  unstored = login.pageKey;
  stored(KEY, login.pageKey);
}
export const rows = () => [...known.children.values()];
// The server's time, whatever the clock of this machine says. It stands still while there is no connection, as the numbers do.
export const now = () => (known.lostAt || Date.now()) - known.skew;
export const mayAct = () => Boolean(known.overview && known.overview.mayAct);
export const mayAdmin = () =>
  Boolean(known.overview && (known.overview.scope ? known.overview.scope === "admin" : known.overview.mayAct));

// Returns a function that removes the listener; views call it when they are left.
export function on(event, listener) {
  if (!listeners.has(event)) listeners.set(event, new Set());
  listeners.get(event).add(listener);
  return () => listeners.get(event).delete(listener);
}
export function emit(event, what) {
  for (const listener of [...(listeners.get(event) || [])]) listener(what);
}

// How far the clock of this device is ahead, at least: an answer that takes long does not make it wrong.
export const skewOf = (sent, received, atServer) =>
  atServer > received ? received - atServer : Math.max(0, sent - atServer);

async function getOverview() {
  const sent = Date.now(),
    overview = await get("/api/overview", {}, ANSWER_MS);
  known.skew = skewOf(sent, Date.now(), overview.now);
  return overview;
}

async function takeStock() {
  const overview = await getOverview(); // alone, since it shows whether we are logged in
  const [children, calls, savings] = await Promise.all([
    get("/api/children"),
    get("/api/calls", { limit: FIRST_CALLS }),
    get("/api/savings"),
  ]);
  const restarted = known.overview && known.overview.startedAt !== overview.startedAt;
  known.overview = overview;
  known.children = new Map(children.children.map((row) => [row.id, row]));
  known.calls = calls.calls.sort((a, b) => a.seq - b.seq);
  known.points = savings.points;
  known.savings = savings;
  if (version && version !== overview.version) emit("upgraded", overview.version);
  version = version || overview.version;
  for (const event of ["server", "children", "savings", "history", "mail"]) emit(event);
  emit("calls", null); // all of them are new
  if (restarted) emit("restarted");
}

export async function connect() {
  drop();
  await takeStock();
  drop(); // another attempt may have been quicker
  heardAt = Date.now();
  source = new EventSource(`/events?key=${encodeURIComponent(pageKey())}`);
  const hear = (event, take) =>
    source.addEventListener(event, (message) => {
      heardAt = Date.now();
      take(JSON.parse(message.data));
    });
  let first = true;
  source.addEventListener("open", () => {
    heardAt = Date.now();
    known.refused = false;
    line("live");
    if (!first) takeStock().catch(recover);
    first = false;
  });
  source.addEventListener("error", (event) => {
    if (event.target !== source) return;
    known.refused = first; // the server answers, but has no room for one more page
    line("lost");
    recover(); // a stream that was refused, or one that a server ended when it stopped
  });
  hear("children", ({ changed, gone }) => {
    for (const row of changed) known.children.set(row.id, row);
    for (const id of gone) known.children.delete(id);
    emit("children", changed);
  });
  hear("calls", ({ calls }) => {
    const last = known.calls.length ? known.calls[known.calls.length - 1].seq : 0;
    const fresh = calls.filter((call) => call.seq > last);
    known.calls.push(...fresh);
    if (known.calls.length > MAX_CALLS * 1.2) known.calls.splice(0, known.calls.length - MAX_CALLS);
    emit("calls", fresh);
  });
  hear("savings", ({ point }) => {
    known.points.push(point);
    // The older half loses every second point, as on the server.
    if (known.points.length > MAX_SAVINGS)
      known.points = known.points.filter((_, place) => place % 2 === 0 || place > MAX_SAVINGS / 2);
    emit("savings");
  });
  hear("history", ({ point }) => {
    if (point) addToHistory(point);
    emit("history", point);
  });
  hear("server", (changes) => {
    Object.assign(known.overview, changes);
    emit("server");
  });
  hear("connections", (changes) => {
    Object.assign(known.overview, changes);
    emit("server");
  });
  hear("attention", ({ attention }) => {
    known.overview.attention = attention;
    emit("server");
  });
  hear("inbox", ({ count }) => {
    known.overview.approvals = count;
    emit("server");
    emit("inbox");
  });
  hear("resources", ({ points }) => emit("resources", points));
  hear("mail", () => emit("mail"));
  clearInterval(watching);
  watching = setInterval(watch, 5000);
}

// The newest interval is sent again while it grows. The stored minute may begin at the same time, and has the tokens.
function addToHistory(point) {
  const isSame = ([at, seconds]) => at >= point[0] && seconds === point[1];
  while (known.history.length && isSame(known.history[known.history.length - 1])) known.history.pop();
  known.history.push(point);
  if (known.history.length > MAX_HISTORY) known.history.splice(0, known.history.length - MAX_HISTORY);
}

// Notices a connection that is dead without having been closed, and a login that has expired.
async function watch() {
  if (known.line !== "live" || Date.now() - heardAt < SILENT_MS) return;
  heardAt = Date.now();
  try {
    const overview = await getOverview();
    Object.assign(known.overview, overview);
    emit("server");
  } catch (problem) {
    if (problem.status === 401) return;
    line("lost");
    recover();
  }
}

// A server that has restarted knows no login of before: its 401 brings up the form.
function recover() {
  clearTimeout(again);
  if (source) source.close();
  again = setTimeout(
    async () => {
      try {
        await connect();
      } catch (problem) {
        if (problem.status !== 401) {
          line("lost");
          recover();
        }
      }
    },
    known.refused ? REFUSED_MS : RETRY_MS,
  );
}

// The device has said that there is no network; streams may take minutes to notice.
export function lose() {
  if (!source) return;
  line("lost");
  recover();
}

export function reconnect() {
  if (known.line !== "lost") return;
  clearTimeout(again);
  connect().catch((problem) => {
    if (problem.status !== 401) recover();
  });
}

export function forget() {
  Object.assign(known, { overview: null, children: new Map(), calls: [], points: [], history: [] });
}

function line(word) {
  known.line = word;
  known.lostAt = word === "lost" ? known.lostAt || Date.now() : 0;
  emit("line");
}

function drop() {
  clearTimeout(again);
  if (source) source.close();
  source = null;
}

export function disconnect() {
  drop();
  clearInterval(watching);
  line("connecting");
}
