// A virtual list: only visible rows are in the DOM. Rows have a fixed height; pages are fetched while scrolling.

import { h } from "/static/dom.js";

const MORE = 8;

export class List {
  // row(item, index) creates the content of a row; more() fetches the next page and resolves when it has arrived.
  constructor({ label, row, rowHeight, open, more, empty, key }) {
    Object.assign(this, { row, rowHeight, open, more, key: key || ((item) => item.id) });
    this.items = [];
    this.place = 0;
    this.fetching = false;
    this.ended = !more;
    this.spacer = h("div", { class: "list-all", role: "presentation" });
    this.emptyText = empty || "Nothing here.";
    this.node = h("div", { class: "list", role: "listbox", tabIndex: 0, "aria-label": label, onscroll: () => this.draw(), onkeydown: (event) => this.press(event) }, this.spacer);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  set(items, ended) {
    const was = this.items[this.place];
    this.items = items;
    if (ended !== undefined) this.ended = ended;
    // Keep the scroll position while new items arrive above.
    const now = was === undefined ? -1 : items.findIndex((item) => this.key(item) === this.key(was));
    if (now >= 0) {
      if (this.node.scrollTop > 0) this.node.scrollTop += (now - this.place) * this.rowHeight;
      this.place = now;
    } else this.place = Math.min(this.place, Math.max(0, items.length - 1));
    this.draw();
  }

  draw() {
    const height = this.node.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.node.scrollTop / this.rowHeight) - MORE);
    const last = Math.min(this.items.length, Math.ceil((this.node.scrollTop + height) / this.rowHeight) + MORE);
    this.spacer.style.height = `${this.items.length * this.rowHeight}px`;
    const rows = [];
    for (let index = first; index < last; index++) {
      const item = this.items[index];
      const row = h("div", { class: "list-row", role: "option", id: `${this.id()}-${index}`, "aria-selected": String(index === this.place), "aria-posinset": index + 1, "aria-setsize": this.ended ? this.items.length : -1, onclick: () => this.choose(index) }, this.row(item, index));
      row.style.top = `${index * this.rowHeight}px`;
      row.style.height = `${this.rowHeight}px`;
      rows.push(row);
    }
    if (!this.items.length) rows.push(h("p", { class: "empty" }, this.fetching ? "Looking…" : this.emptyText));
    this.spacer.replaceChildren(...rows);
    if (this.items.length) this.node.setAttribute("aria-activedescendant", `${this.id()}-${this.place}`);
    if (!this.ended && !this.fetching && last >= this.items.length - MORE) this.fetchMore();
  }

  id() {
    return (this.name ||= `list${(List.count = (List.count || 0) + 1)}`);
  }

  async fetchMore() {
    this.fetching = true;
    try { await this.more(); } finally {
      this.fetching = false;
      this.draw();
    }
  }

  choose(index) {
    this.place = index;
    this.draw();
    if (this.open && this.items[index]) this.open(this.items[index]);
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -this.items.length, End: this.items.length };
    if (event.key === "Enter") {
      event.preventDefault(); // or it presses the button that gets the focus
      return void this.choose(this.place);
    }
    if (!(event.key in steps) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.place = Math.max(0, Math.min(this.items.length - 1, this.place + steps[event.key]));
    const top = this.place * this.rowHeight;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + this.rowHeight > this.node.scrollTop + this.node.clientHeight) this.node.scrollTop = top + this.rowHeight - this.node.clientHeight;
    this.draw();
  }
}
