// Differences of two texts, word by word.

import { h } from "/static/dom.js";

// Longer texts are compared by lines: the comparison takes the product of both lengths.
const MOST_WORDS = 1200;

const split = (text, pattern) => text.match(pattern) || [];

// The longest common subsequence, as pieces [kind, text] with kind "same", "del" or "ins".
export function pieces(before, after) {
  let a = split(before, /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu),
    b = split(after, /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu);
  if (a.length > MOST_WORDS || b.length > MOST_WORDS) {
    a = split(before, /[^\n]*\n?/g);
    b = split(after, /[^\n]*\n?/g);
  }
  if (a.length > MOST_WORDS || b.length > MOST_WORDS)
    return [
      ["del", before],
      ["ins", after],
    ];
  let first = 0,
    lastA = a.length,
    lastB = b.length;
  while (first < lastA && first < lastB && a[first] === b[first]) first++;
  while (lastA > first && lastB > first && a[lastA - 1] === b[lastB - 1]) {
    lastA--;
    lastB--;
  }
  const rows = lastA - first + 1,
    columns = lastB - first + 1,
    table = new Uint16Array(rows * columns);
  for (let i = rows - 2; i >= 0; i--)
    for (let j = columns - 2; j >= 0; j--)
      table[i * columns + j] =
        a[first + i] === b[first + j]
          ? table[(i + 1) * columns + j + 1] + 1
          : Math.max(table[(i + 1) * columns + j], table[i * columns + j + 1]);
  const found = [];
  const add = (kind, text) => {
    if (!text) return;
    const last = found[found.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else found.push([kind, text]);
  };
  add("same", a.slice(0, first).join(""));
  let i = 0,
    j = 0;
  while (i < rows - 1 || j < columns - 1) {
    if (i < rows - 1 && j < columns - 1 && a[first + i] === b[first + j]) {
      add("same", a[first + i]);
      i++;
      j++;
    } else if (j >= columns - 1 || (i < rows - 1 && table[(i + 1) * columns + j] >= table[i * columns + j + 1]))
      add("del", a[first + i++]);
    else add("ins", b[first + j++]);
  }
  add("same", a.slice(lastA).join(""));
  return found;
}

export const diff = (before, after) =>
  h(
    "p",
    { class: "diff" },
    pieces(before || "", after || "").map(([kind, text]) => (kind === "same" ? text : h(kind, {}, text))),
  );

// A text in which differences are marked as `[-before-] {+after+}`, the way the terminal shows them.
export const markedDiff = (text) =>
  h(
    "p",
    { class: "diff" },
    text
      .split(/(\[-[^]*?-\]|\{\+[^]*?\+\})/)
      .map((part) =>
        part.startsWith("[-") && part.endsWith("-]")
          ? h("del", {}, part.slice(2, -2))
          : part.startsWith("{+") && part.endsWith("+}")
            ? h("ins", {}, part.slice(2, -2))
            : part,
      ),
  );
