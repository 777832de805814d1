// A form made from a JSON Schema: a field per property, nested objects as groups, and plain JSON for what has no field.

import { h } from "/static/dom.js";
import { field } from "/static/ui.js";

const MOST_FIELDS = 60,
  DEEPEST = 3;
const typeOf = (schema) => {
  const type = Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type;
  return type || (schema.properties ? "object" : schema.enum ? "enum" : "");
};

// References into the schema itself; others are left to plain JSON.
function resolve(schema, root, depth = 0) {
  if (!schema || typeof schema !== "object") return {};
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/") && depth < 8) {
    const found = schema.$ref
      .slice(2)
      .split("/")
      .reduce(
        (at, part) => (at && typeof at === "object" ? at[part.replace(/~1/g, "/").replace(/~0/g, "~")] : undefined),
        root,
      );
    return resolve(
      { ...found, ...Object.fromEntries(Object.entries(schema).filter(([key]) => key !== "$ref")) },
      root,
      depth + 1,
    );
  }
  const choices = (schema.anyOf || schema.oneOf || []).filter((each) => each && each.type !== "null");
  return choices.length === 1
    ? resolve({ ...choices[0], ...schema, anyOf: undefined, oneOf: undefined }, root, depth + 1)
    : schema;
}

export class InvalidInput extends Error {}

// Returns { node, value() }: value() is undefined for an empty field that is not required.
function control(label, raw, required, root, depth) {
  const schema = resolve(raw, root),
    type = typeOf(schema),
    note = schema.description,
    title = `${label}${required ? " *" : ""}`;
  const initial = schema.default;
  if (Array.isArray(schema.enum) && schema.enum.length <= 200) {
    const box = h(
      "select",
      {},
      required && initial === undefined ? "" : h("option", { value: "" }, "–"),
      schema.enum.map((each, place) => h("option", { value: String(place), selected: each === initial }, String(each))),
    );
    return {
      node: field(title, box, note),
      value: () => (box.value === "" ? undefined : schema.enum[Number(box.value)]),
    };
  }
  if (type === "boolean") {
    const box = h(
      "select",
      {},
      h("option", { value: "" }, "–"),
      h("option", { value: "true", selected: initial === true }, "true"),
      h("option", { value: "false", selected: initial === false }, "false"),
    );
    return {
      node: field(title, box, note),
      value: () => (box.value === "" ? (required ? false : undefined) : box.value === "true"),
    };
  }
  if (type === "integer" || type === "number") {
    const box = h("input", {
      type: "number",
      step: type === "integer" ? 1 : "any",
      min: schema.minimum,
      max: schema.maximum,
      required,
      value: initial === undefined ? "" : String(initial),
    });
    return { node: field(title, box, note), value: () => (box.value === "" ? undefined : Number(box.value)) };
  }
  if (type === "string") {
    const long =
      (schema.maxLength || 0) > 200 || /\b(text|body|content|message|code|query|markdown|sql)\b/i.test(label);
    const box = long
      ? h("textarea", { rows: 3, required, value: initial || "" })
      : h("input", { type: "text", required, value: initial || "", spellcheck: false, autocomplete: "off" });
    return { node: field(title, box, note), value: () => (box.value === "" && !required ? undefined : box.value) };
  }
  if (type === "object" && schema.properties && depth < DEEPEST) return group(title, schema, root, depth + 1, required);
  const items = type === "array" ? resolve(schema.items, root) : null;
  if (items && typeOf(items) === "string" && !items.enum) {
    const box = h("textarea", { rows: 3, class: "code", value: Array.isArray(initial) ? initial.join("\n") : "" });
    return {
      node: field(title, box, `${note ? `${note} ` : ""}One per line.`),
      value: () => (box.value === "" ? (required ? [] : undefined) : box.value.split("\n")),
    };
  }
  const box = h("textarea", {
    rows: 3,
    class: "code",
    spellcheck: false,
    value: initial === undefined ? "" : JSON.stringify(initial, null, 2),
  });
  return {
    node: field(title, box, `${note ? `${note} ` : ""}As JSON.`),
    value: () => {
      if (!box.value.trim()) return undefined;
      try {
        return JSON.parse(box.value);
      } catch {
        box.focus();
        throw new InvalidInput(`${label} is not valid JSON.`);
      }
    },
  };
}

function group(title, schema, root, depth, required) {
  const needed = new Set(schema.required || []),
    names = Object.keys(schema.properties || {}).slice(0, MOST_FIELDS);
  names.sort((a, b) => Number(needed.has(b)) - Number(needed.has(a)));
  const controls = names.map((name) => [
    name,
    control(name, schema.properties[name], needed.has(name) && required !== false, root, depth),
  ]);
  const nodes = controls.map(([, { node }]) => node);
  return {
    node: title ? h("fieldset", {}, h("legend", {}, title), nodes) : h("div", { class: "form" }, nodes),
    value: () => {
      const filled = controls.map(([name, { value }]) => [name, value()]).filter(([, value]) => value !== undefined);
      return filled.length || required !== false ? Object.fromEntries(filled) : undefined;
    },
  };
}

// The form of a subtool's arguments, with a switch to plain JSON.
export function schemaForm(schema) {
  const usable =
    schema && typeof schema === "object" && schema.properties && Object.keys(schema.properties).length <= MOST_FIELDS;
  const fields = usable ? group("", schema, schema, 0, true) : null;
  const text = h("textarea", {
    rows: 8,
    class: "code",
    "aria-label": "Arguments as JSON",
    spellcheck: false,
    value: "{}",
  });
  let plain = !fields;
  const box = h("div", { class: "form" });
  const toggle =
    fields &&
    h("button", {
      type: "button",
      class: "quiet",
      onclick: () => {
        if (!plain) {
          try {
            text.value = JSON.stringify(fields.value(), null, 2);
          } catch {
            /* then what was there stays */
          }
        }
        plain = !plain;
        draw();
      },
    });
  const draw = () => {
    box.replaceChildren(plain ? text : fields.node);
    if (toggle) toggle.textContent = plain ? "As a form" : "As JSON";
  };
  draw();
  return {
    node: box,
    toggle,
    value: () => {
      if (!plain) return fields.value();
      let value;
      try {
        value = JSON.parse(text.value || "{}");
      } catch {
        throw new InvalidInput("The arguments are not valid JSON.");
      }
      if (value === null || typeof value !== "object" || Array.isArray(value))
        throw new InvalidInput("The arguments must be a JSON object.");
      return value;
    },
  };
}
