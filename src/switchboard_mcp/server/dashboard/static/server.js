// The connection to the server: requests, the event stream, and the state received so far.

export const known = { overview: null, children: new Map(), calls: [], points: [], history: [], line: "connecting" };
const listeners = new Map();
let source = null;

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
// The server's time.
export const now = () => Date.now() - (known.skew || 0);

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
  known.history = history.points;
  emit("server");
  emit("children");
  emit("calls", []);
  emit("savings");
  emit("history");
}

export async function connect() {
  disconnect();
  await takeStock();
  source = new EventSource("/events");
  const hear = (event, take) => source.addEventListener(event, (message) => take(JSON.parse(message.data)));
  let first = true;
  source.addEventListener("open", () => {
    line("live");
    if (!first) takeStock().catch(() => {});
    first = false;
  });
  source.addEventListener("error", () => line(source.readyState === 2 ? "lost" : "connecting"));
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

export function forget() {
  Object.assign(known, { overview: null, children: new Map(), calls: [], points: [], history: [] });
}

function line(word) {
  known.line = word;
  emit("line");
}

export function disconnect() {
  if (source) source.close();
  source = null;
  line("connecting");
}
