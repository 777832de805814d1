"""Renders a tool's schemas as one readable line: its parameters, and the type of its result.

    (path: string, head?: integer=10 "first N lines", mode: "a"|"b", opts?: {deep: boolean, tags?: string[]})

The notation has every parameter name, type, enum value and optional mark at every depth, plus short defaults, formats,
numeric bounds and truncated parameter docs. Lengths and patterns of strings are omitted. A definition that is used more
than once is written out at its first use (`Point{x: number, y: number}`) and only named after that: recursion ends, and
the line grows with the schema, not with the paths through it. A schema that takes too much work is written as `(…)`.
The short form writes nested objects as `{…}`, and of a long enumeration only the first values.
The type of a result (`{id: integer, tags: string[]}`) has no docs, defaults or bounds, and gets shorter until it fits a
limit. Not aware of tools or budgets.
"""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard_mcp.suites.schema_compaction import pointer, resolve
from switchboard_mcp.suites.summary import summarise
from switchboard_mcp.suites.token_estimate import estimate

DOC_CHARS = 60
# Nobody can follow deeper nesting, and a hostile schema must not exhaust the stack.
MAX_DEPTH = 64
# Parts of a schema that are rendered; 64 characters of names and values count as one more. Several times the largest
# schema of 4,315 published tools, and more than any host shows a model.
MAX_WORK = 20_000
CHARS_PER_PART = 64
# Up to this length, repeating a definition is cheaper than naming it.
SHORT = 24
# A longer default is data, not a hint.
DEFAULT_CHARS = 40
# JavaScript generators write this for "any integer".
SAFE_INTEGER = 2**53 - 1
# Formats have short names; a longer one is not a format.
FORMAT_CHARS = 40
UNREADABLE = "(…)"
# The short form.
NESTED = "{…}"
MAX_SHORT_VALUES = 8
ANY = "any"
BARE_OBJECT = "object"
# A result type that says nothing.
EMPTY_TYPES = frozenset({ANY, BARE_OBJECT, "{}", NESTED})
# Levels of objects that are written out in a result type: all, then fewer.
RESULT_DEPTHS = (MAX_DEPTH, 2, 1)
# Of 611 published output schemas, 468 fit whole.
RESULT_TOKENS = 60
# FastMCP wraps results that are not objects in this sole property.
WRAPPER = "result"

# Precedence of expressions; a looser one needs parentheses inside a tighter one.
ATOM, BOTH, EITHER = 0, 1, 2
Expression = tuple[str, int]


def signature(schema: object, doc_chars: int = DOC_CHARS, *, is_short: bool = False) -> str:
    """Return one line for the parameters of `schema`. `doc_chars` limits each parameter's doc; 0 omits docs."""
    try:
        objects = 1 if is_short else MAX_DEPTH
        text, level = _Reader(schema, doc_chars, max_objects=objects).expression(schema, 0)
    except _TooMuchWorkError:
        return UNREADABLE
    text = text.replace("\n", " ").replace("\r", " ")
    if text in (ANY, BARE_OBJECT, "{}"):
        return "()"
    if level == ATOM and text.startswith("{") and text.endswith("}"):
        return f"({text[1:-1]})"
    return f"({text})"


def result_type(schema: object, max_tokens: int = RESULT_TOKENS) -> str:
    """Return the type of a result in at most `max_tokens`, as complete as fits; empty if it says nothing."""
    schema = unwrapped(schema)
    try:
        for depth in RESULT_DEPTHS:
            reader = _Reader(schema, 0, max_objects=depth, is_result=True)
            text = reader.expression(schema, 0)[0].replace("\n", " ").replace("\r", " ")
            if text in EMPTY_TYPES:
                return ""
            if estimate(text) <= max_tokens:
                return text
    except _TooMuchWorkError:
        return ""
    text = _member_names(schema)
    return text if estimate(text) <= max_tokens else ""


def unwrapped(schema: object) -> object:
    """Return the schema of the sole property `result`, if that is all there is; with the definitions it may use."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return schema
    properties = schema["properties"]
    if list(properties) != [WRAPPER] or not isinstance(properties[WRAPPER], dict):
        return schema
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {**definitions, **properties[WRAPPER]}


def _member_names(schema: object) -> str:
    """Return an object's members by name alone."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return "{" + ", ".join(map(_name, properties)) + "}" if isinstance(properties, dict) else ""


class _TooMuchWorkError(Exception):
    """Stops the rendering of an excessive schema."""


class _Reader:
    """Renders one schema and remembers which definitions have been written out.

    Objects deeper than `max_objects` are cut. `is_result` omits what matters only to a caller: defaults and bounds.
    """

    def __init__(self, root: object, doc_chars: int, *, max_objects: int, is_result: bool = False) -> None:
        self.root = root
        self.doc_chars = doc_chars
        self.max_objects = max_objects
        self.is_short = max_objects < MAX_DEPTH
        self.is_result = is_result
        self.open_objects = 0
        self.uses: dict[tuple[str, ...], int] | None = None
        self.left = MAX_WORK
        self.names: dict[tuple[str, ...], str] = {}
        self.taken: dict[str, int] = {}  # names in use, with the last number that was added to each
        self.written: dict[tuple[str, ...], Expression] = {}
        self.open: set[tuple[str, ...]] = set()
        self.recursive: set[tuple[str, ...]] = set()

    def spend(self, chars: int) -> None:
        """Count one more part, with that many characters of its own."""
        self.left -= 1 + chars // CHARS_PER_PART
        if self.left < 0:
            raise _TooMuchWorkError

    def expression(self, node: Any, depth: int) -> Expression:
        """Return the type expression of a schema."""
        self.spend(0)
        if node is False:
            return "never", ATOM
        if not isinstance(node, dict) or depth > MAX_DEPTH:
            return ANY, ATOM
        parts = [self.reference(node["$ref"], depth)] if "$ref" in node else []
        if "const" in node:
            parts.append((self.literal(node["const"]), ATOM))
        elif isinstance(node.get("enum"), list) and node["enum"]:
            parts.append(_either([(text, ATOM) for text in self.values(node["enum"])]))
        else:
            parts.append(self.typed(node, depth))
        for keyword in ("anyOf", "oneOf"):
            if isinstance(node.get(keyword), list):
                parts.append(_either([self.expression(branch, depth + 1) for branch in node[keyword]]))
        if isinstance(node.get("allOf"), list):
            parts.extend(self.expression(branch, depth + 1) for branch in node["allOf"])
        parts.extend(self.conditions(node, depth))
        return _both(parts)

    def values(self, enum: list[Any]) -> list[str]:
        """Return the values of an enumeration; in the short form, the first ones."""
        if self.is_short and len(enum) > MAX_SHORT_VALUES:
            return [*map(self.literal, enum[:MAX_SHORT_VALUES]), "…"]
        return [self.literal(value) for value in enum]

    def literal(self, value: object) -> str:
        """Return a value as JSON."""
        text = _literal(value)
        self.spend(len(text))
        return text

    def conditions(self, node: dict[str, Any], depth: int) -> list[Expression]:
        """Return conditional parameters as alternatives, without their conditions."""
        texts = []
        cases = [node[keyword] for keyword in ("then", "else") if isinstance(node.get(keyword), dict)]
        if cases:
            texts.append(_either([self.expression(case, depth + 1) for case in cases]))
        dependent = node.get("dependentSchemas")
        if isinstance(dependent, dict):
            texts.extend(self.expression(case, depth + 1) for case in dependent.values())
        return texts

    def typed(self, node: dict[str, Any], depth: int) -> Expression:
        declared = node.get("type")
        if declared is None:
            declared = _implied(node)
        # Distinct ones only: each is rendered with all properties of the node.
        names = (
            dict.fromkeys(type_name for type_name in declared if isinstance(type_name, str))
            if isinstance(declared, list)
            else [declared]
        )
        return _either([self.one_type(name, node, depth) for name in names])

    def one_type(self, name: object, node: dict[str, Any], depth: int) -> Expression:
        if name == "object":
            if not self.is_short or not _has_members(node):
                return self.object_text(node, depth), ATOM
            if self.open_objects >= self.max_objects:
                return NESTED, ATOM
            self.open_objects += 1
            text = self.object_text(node, depth)
            self.open_objects -= 1
            return text, ATOM
        if name == "array":
            return self.array_text(node, depth), ATOM
        if name in ("integer", "number"):
            return (name if self.is_result else f"{name}{_bounds(node)}"), ATOM
        if name == "string" and isinstance(node.get("format"), str):
            return f"string({node['format'][:FORMAT_CHARS]})", ATOM
        return (name if isinstance(name, str) else ANY), ATOM

    def object_text(self, node: dict[str, Any], depth: int) -> str:
        properties = node.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = node.get("required")
        required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        marked = set(required)
        fields = [self.field(name, value, name in marked, depth) for name, value in properties.items()]
        fields.extend(
            f"{self.field_name(name)}: {ANY}" for name in dict.fromkeys(required) if name not in properties
        )
        patterns = node.get("patternProperties")
        if isinstance(patterns, dict):
            for key, value in patterns.items():
                self.spend(len(key))
                fields.append(f"[/{key}/]: {self.expression(value, depth + 1)[0]}")
        others = node.get("additionalProperties")
        keys, _ = self.expression(node.get("propertyNames"), depth + 1)
        keys = "[key]" if keys in (ANY, "string") else f"[key: {keys}]"
        if (isinstance(others, dict) and others) or keys != "[key]":
            fields.append(f"{keys}: {self.expression(others, depth + 1)[0]}")
        if fields:
            return "{" + ", ".join(fields) + "}"
        if isinstance(node.get("items"), dict):
            # Has no meaning for a validator, but shows what the author meant.
            return f"{BARE_OBJECT}<{self.expression(node['items'], depth + 1)[0]}>"
        return "{}" if others is False else BARE_OBJECT

    def field_name(self, name: str) -> str:
        self.spend(len(name))
        return _name(name)

    def field(self, name: str, node: Any, required: bool, depth: int) -> str:
        text = f"{self.field_name(name)}{'' if required else '?'}: {self.expression(node, depth + 1)[0]}"
        if not isinstance(node, dict):
            return text
        # A default of null adds nothing to the question mark.
        if node.get("default") is not None and not self.is_result:
            default = self.literal(node["default"])
            if len(default) <= DEFAULT_CHARS:
                text += f"={default}"
        doc = node.get("description")
        if self.doc_chars > 0 and isinstance(doc, str):
            doc = summarise(doc.replace('"', "'"), self.doc_chars)
            text += f' "{doc}"' if doc else ""
        return text

    def array_text(self, node: dict[str, Any], depth: int) -> str:
        items = node.get("items")
        first = node.get("prefixItems", items)
        if isinstance(first, list) and first:
            places = [self.expression(item, depth + 1)[0] for item in first]
            rest = items if isinstance(items, dict) else node.get("additionalItems")
            if isinstance(rest, dict):
                places.append(f"...{_tight(self.expression(rest, depth + 1))}[]")
            return f"[{', '.join(places)}]"
        return f"{_tight(self.expression(items, depth + 1))}[]"

    def reference(self, ref: object, depth: int) -> Expression:
        path = pointer(ref)
        self.spend(len(ref) if isinstance(ref, str) else 0)
        if path is None:
            return (ref.rpartition("/")[2].lstrip("#") or ANY if isinstance(ref, str) else ANY), ATOM
        if path in self.written:
            return self.written[path]
        name = self.name(path)
        if path in self.open or resolve(self.root, path) is None:
            self.recursive.add(path)
            return name, ATOM
        self.open.add(path)
        text, level = self.expression(resolve(self.root, path), depth + 1)
        self.open.discard(path)
        if path not in self.recursive and (self.used(path) == 1 or len(text) <= SHORT):
            self.written[path] = text, level
            return text, level
        self.written[path] = name, ATOM
        return (f"{name}{text}" if level == ATOM and text.startswith("{") else f"{name}<{text}>"), ATOM

    def name(self, path: tuple[str, ...]) -> str:
        """Return the name of a definition, numbered if two have the same."""
        if path not in self.names:
            base = name = path[-1] if path else "self"
            while name in self.taken:
                self.spend(0)
                self.taken[base] += 1
                name = f"{base}{self.taken[base]}"
            self.taken[name] = 1
            self.names[path] = name
        return self.names[path]

    def used(self, path: tuple[str, ...]) -> int:
        """Return the number of references to a path."""
        if self.uses is None:
            self.uses = {}
            stack: list[Any] = [self.root]
            while stack:
                node = stack.pop()
                if isinstance(node, dict):
                    target = pointer(node.get("$ref"))
                    if target is not None:
                        self.uses[target] = self.uses.get(target, 0) + 1
                    stack.extend(node.values())
                elif isinstance(node, list):
                    stack.extend(node)
        return self.uses.get(path, 1)


def _has_members(node: dict[str, Any]) -> bool:
    return any(node.get(keyword) for keyword in ("properties", "required", "patternProperties"))


def _either(options: list[Expression]) -> Expression:
    """Join alternatives; equal ones are written once."""
    options = list(dict.fromkeys(options))
    if not options:
        return ANY, ATOM
    if len(options) == 1:
        return options[0]
    return "|".join(f"({text})" if level == BOTH else text for text, level in options), EITHER


def _both(parts: list[Expression]) -> Expression:
    """Join expressions that all apply; redundant ones are omitted."""
    telling = [part for part in dict.fromkeys(parts) if part[0] != ANY]
    if len(telling) > 1:
        telling = [part for part in telling if part[0] != BARE_OBJECT]
    if not telling:
        return ANY, ATOM
    if len(telling) == 1:
        return telling[0]
    return " & ".join(_tight(part) if part[1] == EITHER else part[0] for part in telling), BOTH


def _tight(part: Expression) -> str:
    return part[0] if part[1] == ATOM else f"({part[0]})"


def _implied(node: dict[str, Any]) -> str | None:
    """Return the implied type of a schema without `type`."""
    if any(word in node for word in ("properties", "required", "patternProperties")):
        return "object"
    if isinstance(node.get("additionalProperties"), dict) and node["additionalProperties"]:
        return "object"
    return "array" if "items" in node or "prefixItems" in node else None


def _bounds(node: dict[str, Any]) -> str:
    low, high = _bound(node.get("minimum")), _bound(node.get("maximum"))
    above, below = _bound(node.get("exclusiveMinimum")), _bound(node.get("exclusiveMaximum"))
    if low and high and not above and not below:
        return f"({low}..{high})"
    marks = [(">=", low), (">", above), ("<=", high), ("<", below)]
    text = ",".join(mark + value for mark, value in marks if value)
    return f"({text})" if text else ""


def _bound(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) == SAFE_INTEGER:
        return ""
    return _literal(value)


def _literal(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, RecursionError):  # an integer beyond 64 bits, a constant nested without end
        return str(value) if isinstance(value, int) else "…"


def _name(name: str) -> str:
    """Return a parameter's name, quoted if it could be mistaken for notation."""
    plain = name and not any(mark in name for mark in " :?,\"{}[]()|&=<>'\n\t")
    return name if plain else _literal(name)
