// A virtual list: only visible rows are in the DOM, and rows that stay are kept. Rows have a fixed height; pages are fetched while scrolling.

import { clear, h } from "/static/dom.js";

const MORE = 8;
let count = 0;

export class List {
  // columns: [class, title, cell(item)]; to(item) is the address of an item; more() fetches the next page and resolves when it has arrived.
  constructor({ label, columns, rowHeight, open, to, more, empty, key, rowClass, kind }) {
    Object.assign(this, { columns, rowHeight, open, to, more, rowClass, key: key || ((item) => item.id) });
    this.id = `list${++count}`;
    this.items = [];
    this.place = 0;
    this.fetching = false;
    this.ended = !more;
    this.drawn = new Map();
    this.emptyText = empty || "Nothing here.";
    this.spacer = h("div", { class: "list-all", role: "rowgroup" });
    const titled = columns.some(([, title]) => title);
    this.head =
      titled &&
      h(
        "div",
        { class: "list-head", role: "rowgroup" },
        h(
          "div",
          { class: "list-cells", role: "row" },
          columns.map(([kind, title]) => h("div", { class: kind, role: "columnheader" }, title)),
        ),
      );
    this.node = h(
      "div",
      {
        class: `list ${kind || ""}`,
        role: "grid",
        tabIndex: 0,
        "aria-label": label,
        onscroll: () => this.draw(),
        onkeydown: (event) => this.press(event),
      },
      this.head || "",
      this.spacer,
    );
    this.emptyNode = h("p", { class: "empty", hidden: true });
    this.outer = h("div", { class: "list-outer" }, this.node, this.emptyNode);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  set(items, ended) {
    const was = this.items[this.place];
    this.items = items;
    if (ended !== undefined) this.ended = ended;
    // Keep the scroll position while new items arrive above.
    const key = was === undefined ? undefined : this.key(was);
    const now = key === undefined ? -1 : items.findIndex((item) => this.key(item) === key);
    if (now >= 0) {
      if (this.node.scrollTop > 0) this.node.scrollTop += (now - this.place) * this.rowHeight;
      this.place = now;
    } else this.place = Math.min(this.place, Math.max(0, items.length - 1));
    this.draw();
  }

  reset() {
    Object.assign(this, { items: [], place: 0, ended: !this.more, fetching: false });
    this.node.scrollTop = 0;
    this.draw();
  }

  draw() {
    const { node, items, rowHeight, drawn } = this,
      height = node.clientHeight || 400;
    const first = Math.max(0, Math.floor(node.scrollTop / rowHeight) - MORE);
    const last = Math.min(items.length, Math.ceil((node.scrollTop + height) / rowHeight) + MORE);
    if (this.tall !== items.length) {
      this.tall = items.length;
      this.spacer.style.height = `${items.length * rowHeight}px`;
      node.setAttribute("aria-rowcount", String(this.ended ? items.length : -1));
    }
    const kept = new Set();
    for (let index = first; index < last; index++) {
      const item = items[index],
        key = this.key(item);
      let row = drawn.get(key);
      if (row && row.item !== item) {
        row.node.remove();
        row = undefined;
      }
      if (!row) {
        row = {
          item,
          node: h(
            "div",
            {
              class: `list-row list-cells ${this.rowClass ? this.rowClass(item) : ""}`,
              role: "row",
              id: `${this.id}-${key}`,
              onclick: (event) => this.clicked(event, item),
            },
            this.columns.map(([kind, , cell]) => h("div", { class: kind, role: "gridcell" }, cell(item))),
          ),
        };
        row.node.style.height = `${rowHeight}px`;
        drawn.set(key, row);
        this.spacer.append(row.node);
      }
      if (row.index !== index) {
        row.index = index;
        row.node.style.transform = `translateY(${index * rowHeight}px)`;
        row.node.setAttribute("aria-rowindex", String(index + 1));
      }
      const selected = String(index === this.place);
      if (row.selected !== selected) row.node.setAttribute("aria-selected", (row.selected = selected));
      kept.add(key);
    }
    for (const [key, row] of drawn)
      if (!kept.has(key)) {
        row.node.remove();
        drawn.delete(key);
      }
    this.emptyNode.hidden = items.length > 0;
    if (!items.length) clear(this.emptyNode, this.fetching || !this.ended ? "Looking…" : this.emptyText);
    const current = items[this.place];
    if (current && drawn.has(this.key(current)))
      node.setAttribute("aria-activedescendant", `${this.id}-${this.key(current)}`);
    else node.removeAttribute("aria-activedescendant");
    if (!this.ended && !this.fetching && last >= items.length - MORE) this.fetchMore();
  }

  async fetchMore() {
    this.fetching = true;
    try {
      await this.more();
    } finally {
      this.fetching = false;
      this.draw();
    }
  }

  // As a link would: with Ctrl or ⌘, in a new tab.
  clicked(event, item) {
    const selection = document.getSelection();
    if (!selection.isCollapsed && this.node.contains(selection.anchorNode)) return; // somebody selects text
    if (this.to && (event.ctrlKey || event.metaKey)) return void window.open(this.to(item), "_blank", "noopener");
    this.choose(this.items.indexOf(item));
  }

  choose(index) {
    this.place = index;
    this.draw();
    const item = this.items[index];
    if (!item) return;
    if (this.open) this.open(item);
    else if (this.to) location.hash = this.to(item);
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight) - 2);
    const steps = {
      ArrowDown: 1,
      j: 1,
      ArrowUp: -1,
      k: -1,
      PageDown: page,
      PageUp: -page,
      Home: -this.items.length,
      End: this.items.length,
    };
    if (event.key === "Enter") {
      event.preventDefault(); // or it presses the button that gets the focus
      return void this.choose(this.place);
    }
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.place = Math.max(0, Math.min(this.items.length - 1, this.place + steps[event.key]));
    this.reveal();
  }

  // Selects the item with this key, as after the return from its page. Returns false if it is not in the list.
  select(key) {
    const index = this.items.findIndex((item) => String(this.key(item)) === String(key));
    if (index < 0) return false;
    this.place = index;
    const active = document.activeElement;
    if (!active || active === document.body || active.id === "view") this.node.focus({ preventScroll: true }); // the list may be late
    this.reveal();
    return true;
  }

  reveal() {
    const above = this.head ? this.head.offsetHeight : 0,
      top = this.place * this.rowHeight;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + this.rowHeight + above > this.node.scrollTop + this.node.clientHeight)
      this.node.scrollTop = top + this.rowHeight + above - this.node.clientHeight;
    this.draw();
  }
}
