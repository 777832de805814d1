// A sortable table of objects: the first column links to the object, so every row can be reached by keys and opened in a new tab.

import { clear, h } from "/static/dom.js";

export class Table {
  // columns: [id, title, cell(row), value(row) to sort by, class]; to(row) is the address of a row.
  constructor({ label, columns, to, key, sort, down, empty }) {
    Object.assign(this, {
      columns,
      to,
      key: key || ((row) => row.id),
      sort: sort || columns[0][0],
      down: Boolean(down),
      emptyText: empty,
      rows: [],
    });
    this.head = h("tr");
    this.body = h("tbody");
    this.node = h(
      "div",
      { class: "scroll tall" },
      h(
        "table",
        { class: "grid-table" },
        h("caption", { class: "hidden" }, label),
        h("thead", {}, this.head),
        this.body,
      ),
    );
    this.made = new Map();
    this.shown = new Map();
    this.drawHead();
  }

  drawHead() {
    clear(
      this.head,
      this.columns.map(([id, title, , value, kind]) =>
        h(
          "th",
          {
            scope: "col",
            class: kind,
            "aria-sort": value ? (id === this.sort ? (this.down ? "descending" : "ascending") : "none") : undefined,
          },
          value
            ? h(
                "button",
                { type: "button", class: "sort", onclick: () => this.sortBy(id) },
                title,
                id === this.sort ? (this.down ? " ↓" : " ↑") : "",
              )
            : h("span", { class: "plain-th" }, title),
        ),
      ),
    );
  }

  sortBy(id) {
    this.down = id === this.sort && !this.down;
    this.sort = id;
    this.drawHead();
    this.head.querySelectorAll("button")[this.columns.findIndex(([each]) => each === id)].focus();
    this.set(this.rows);
  }

  // Rows keep their nodes, and with them the focus. One that is the same object is drawn again only if `all` are: ages change by themselves.
  set(rows, all = true) {
    this.rows = rows;
    const value = this.columns.find(([id]) => id === this.sort)[3],
      way = this.down ? -1 : 1;
    const found = [...rows].sort((a, b) => {
      const x = value(a),
        y = value(b);
      return (x < y ? -1 : x > y ? 1 : this.key(a) < this.key(b) ? -1 : 1) * way;
    });
    const kept = new Set(),
      nodes = found.map((row) => {
        const key = this.key(row);
        kept.add(key);
        let node = this.made.get(key);
        if (node && !all && this.shown.get(key) === row) return node;
        this.shown.set(key, row);
        const cells = this.columns.map(([, , cell]) => cell(row));
        if (!node)
          this.made.set(
            key,
            (node = h(
              "tr",
              {
                "data-id": key,
                "data-item": "",
                onclick: (event) => {
                  if (!event.target.closest("a, button")) location.hash = this.to(row);
                },
              },
              this.columns.map(([, title, , , kind]) => h("td", { class: kind, "data-label": title })),
            )),
          );
        cells.forEach((cell, place) => {
          const box = node.children[place];
          if (place === 0) {
            const link = box.firstChild || box.appendChild(h("a", {}));
            link.href = this.to(row);
            if (link.textContent !== String(cell)) link.textContent = cell;
          } else
            clear(
              box,
              [cell]
                .flat()
                .filter((each) => each !== "" && each !== undefined && each !== null && each !== false)
                .map((each) => (each instanceof Node ? each : document.createTextNode(String(each)))),
            );
        });
        return node;
      });
    for (const [key, node] of this.made)
      if (!kept.has(key)) {
        node.remove();
        this.made.delete(key);
        this.shown.delete(key);
      }
    const shown = nodes.length
      ? nodes
      : [h("tr", { class: "none" }, h("td", { colSpan: this.columns.length }, this.emptyText || "Nothing here."))];
    const same =
      this.body.children.length === shown.length && shown.every((node, place) => this.body.children[place] === node);
    if (!same) {
      const active = document.activeElement;
      this.body.replaceChildren(...shown);
      if (active && this.body.contains(active)) active.focus();
    }
  }
}
