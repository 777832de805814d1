// The connection to the server: requests, the event stream, and the state received so far.

export const known = { overview: null, children: new Map(), calls: [], points: [], history: [], line: "connecting" };
const listeners = new Map();
let source = null, again = 0;
// Between attempts to reach a server that has gone.
const RETRY_MS = 2000;

export class Problem extends Error {
  constructor(status, error) {
    super(error.message || `HTTP ${status}`);
    this.status = status;
    this.hint = error.hint || "";
  }
}

export async function request(method, path, body) {
  const options = { method, credentials: "same-origin", cache: "no-store", headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try { answer = await fetch(path, options); } catch { throw new Problem(0, { message: "The server cannot be reached." }); }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/api/login") emit("out");
    throw new Problem(answer.status, data.error || {});
  }
  return data;
}

export const get = (path, query) => {
  const filled = Object.entries(query || {}).filter(([, value]) => value !== "" && value !== undefined && value !== 0);
  return request("GET", path + (filled.length ? `?${new URLSearchParams(filled)}` : ""));
};
export const post = (path, body = {}) => request("POST", path, body);
export const name = encodeURIComponent;
export const rows = () => [...known.children.values()];
// The server's time. It stands still while there is no connection, as the numbers do.
export const now = () => (known.lostAt || Date.now()) - (known.skew || 0);

// Returns a function that removes the listener; views call it when they are left.
export function on(event, listener) {
  if (!listeners.has(event)) listeners.set(event, new Set());
  listeners.get(event).add(listener);
  return () => listeners.get(event).delete(listener);
}
export function emit(event, what) {
  for (const listener of [...(listeners.get(event) || [])]) listener(what);
}

async function takeStock() {
  const overview = await get("/api/overview"); // alone, since it shows whether we are logged in
  const [children, calls, savings, history] = await Promise.all([
    get("/api/children"), get("/api/calls"), get("/api/savings"), get("/api/history"),
  ]);
  known.overview = overview;
  known.skew = Date.now() - overview.now;
  known.children = new Map(children.children.map((row) => [row.id, row]));
  known.calls = calls.calls;
  known.points = savings.points;
  known.savings = savings;
  known.history = history.points;
  emit("server");
  emit("children");
  emit("calls", []);
  emit("savings");
  emit("history");
}

export async function connect() {
  drop();
  await takeStock();
  drop(); // another attempt may have been quicker
  source = new EventSource("/events");
  const hear = (event, take) => source.addEventListener(event, (message) => take(JSON.parse(message.data)));
  let first = true;
  source.addEventListener("open", () => {
    line("live");
    if (!first) takeStock().catch(recover);
    first = false;
  });
  source.addEventListener("error", (event) => {
    if (event.target !== source) return;
    line("lost");
    if (source.readyState === 2) recover(); // refused; otherwise the browser tries again by itself
  });
  hear("children", ({ changed, gone }) => {
    for (const row of changed) known.children.set(row.id, row);
    for (const id of gone) known.children.delete(id);
    emit("children");
  });
  hear("calls", ({ calls }) => {
    const last = known.calls.length ? known.calls[known.calls.length - 1].seq : 0;
    const fresh = calls.filter((call) => call.seq > last);
    known.calls.push(...fresh);
    if (known.calls.length > 2000) known.calls.splice(0, known.calls.length - 1000);
    emit("calls", fresh);
  });
  hear("savings", ({ point }) => { known.points.push(point); emit("savings"); });
  hear("history", ({ point }) => {
    if (!point) return;
    const last = known.history[known.history.length - 1];
    if (last && last[0] === point[0]) known.history.pop();
    known.history.push(point);
    if (known.history.length > 3000) get("/api/history").then((history) => { known.history = history.points; }).catch(() => {});
    emit("history");
  });
  hear("server", (changes) => { Object.assign(known.overview, changes); emit("server"); });
  hear("mail", () => emit("mail"));
}

// A server that has restarted knows no login of before: its 401 brings up the form.
function recover() {
  clearTimeout(again);
  again = setTimeout(async () => {
    try { await connect(); } catch (problem) { if (problem.status !== 401) { line("lost"); recover(); } }
  }, RETRY_MS);
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
  line("connecting");
}
