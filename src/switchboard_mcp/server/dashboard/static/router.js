// Addresses of views and objects: `#view/part/part?key=value`. Every filter and every object has one.

export const name = encodeURIComponent;

export function parse(hash) {
  const [path, query] = hash.replace(/^#/, "").split("?");
  const [view, ...parts] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view, parts, query: Object.fromEntries(new URLSearchParams(query || "")) };
}

export function href(view, parts = [], query = {}) {
  const filled = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return `#${[view, ...[parts].flat().map((part) => name(String(part)))].join("/")}${filled.length ? `?${new URLSearchParams(filled)}` : ""}`;
}

export const go = (...address) => {
  location.hash = href(...address);
};

// Changes the address without a step in the history: filters as they are typed.
export const replace = (...address) => history.replaceState(null, "", href(...address));
