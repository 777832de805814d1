"""Compacts JSON Schemas without changing what they accept.

Removes redundant keywords and inlines references. Works on decoded JSON and never modifies its input. Not aware of
tokens, tools or budgets.

A validator must give the same verdict before and after. If that is not certain, because a schema refers to its parts
other than by path or uses an unknown draft, only annotations are changed.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from switchboard_mcp.suites.summary import one_line

# Deeper parts are passed on unchanged: a hostile schema must not exhaust the stack.
MAX_DEPTH = 64

DEFS = ("$defs", "definitions")
ONE = frozenset(
    "additionalItems additionalProperties contains contentSchema else if items not propertyNames then "
    "unevaluatedItems unevaluatedProperties".split()
)
MANY = frozenset("allOf anyOf items oneOf prefixItems".split())
MAPS = frozenset("$defs definitions dependencies dependentSchemas patternProperties properties".split())
LITERALS = frozenset("const default enum required type".split())
ANNOTATIONS = frozenset(
    "$comment default deprecated description examples nullable readOnly title writeOnly".split()
)
# Keywords that are redundant if false.
FALSE_IS_NOTHING = frozenset("deprecated nullable readOnly uniqueItems writeOnly".split())
# Keywords by which a schema can be referenced other than by its path.
NAMED = frozenset("$anchor $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef".split())
# Keywords whose meaning depends on the draft, so `$schema` has to be kept.
DRAFT_BOUND = frozenset(
    "additionalItems dependencies dependentRequired dependentSchemas else if maxContains minContains prefixItems "
    "then unevaluatedItems unevaluatedProperties".split()
)
DEFAULT_DRAFT = "2020-12/schema"
KNOWN_DRAFTS = (DEFAULT_DRAFT, "2019-09/schema", "draft-07/schema", "draft-06/schema")
# A branch with only these keywords, for a type that is not null, does not constrain null.
TYPED = frozenset(
    "additionalProperties contains contentEncoding contentMediaType default dependentRequired description enum "
    "exclusiveMaximum exclusiveMinimum format items maxItems maxLength maxProperties maximum minItems minLength "
    "minProperties minimum multipleOf pattern patternProperties prefixItems properties propertyNames required type "
    "uniqueItems".split()
)


def compact(schema: object) -> object:
    """Return the schema without parts that are irrelevant to a caller. A value that is not a schema is unchanged."""
    if not isinstance(schema, dict):
        return schema
    return _Compactor(schema).whole()


def pointer(ref: object) -> tuple[str, ...] | None:
    """Return the steps of a local reference (`#` has none), or None if it is not a path in the same document."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    if "%" in ref:
        # Rare, so not imported at every start.
        from urllib.parse import unquote

        ref = unquote(ref)
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in ref.split("/")[1:])


def resolve(root: object, path: tuple[str, ...]) -> object:
    """Return the part of a document at a path, or None."""
    node: Any = root
    for step in path:
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list) and step.isascii() and step.isdigit() and int(step) < len(node):
            node = node[int(step)]
        else:
            return None
    target: object = node
    return target


class _Inspection(Struct):
    """Facts about the whole document that decide which parts may change."""

    uses: dict[tuple[str, ...], int]  # definition → references to it or into it
    by_name: bool = False  # some part is referenced other than by path
    by_path: bool = False  # some reference points outside the definitions: paths must stay valid
    unevaluated: bool = False  # `additionalProperties: true` has an effect elsewhere
    draft_bound: bool = False


def _inspect(root: dict[str, Any]) -> _Inspection:
    seen = _Inspection({})
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(item for item in node if isinstance(item, (dict, list)))
            continue
        for key, value in node.items():
            if isinstance(value, (dict, list)):
                stack.append(value)
            if key == "$ref" and isinstance(value, str):
                _note_reference(seen, node, value)
            elif key in NAMED and not isinstance(value, dict):
                seen.by_name = True
            elif key in DRAFT_BOUND or (key == "items" and isinstance(value, list)):
                seen.draft_bound = True
                seen.unevaluated |= key.startswith("unevaluated")
    return seen


def _note_reference(seen: _Inspection, node: dict[str, Any], ref: str) -> None:
    path = pointer(ref)
    if path is None:
        seen.by_name = True
    elif path[:1] and path[0] in DEFS and len(path) > 1:
        seen.uses[path[:2]] = seen.uses.get(path[:2], 0) + 1
    elif path:
        seen.by_path = True
    if not ANNOTATIONS.issuperset(node.keys() - {"$ref", "$schema", *DEFS}):
        seen.draft_bound = True


class _Compactor:
    """Rewrites one document. Definitions come last, when it is known which are still referenced."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.seen = _inspect(root)
        draft = str(root.get("$schema", DEFAULT_DRAFT)).rstrip("#")
        is_known_draft = draft.endswith(KNOWN_DRAFTS)
        self.keeps_draft = not draft.endswith(DEFAULT_DRAFT) and (self.seen.draft_bound or not is_known_draft)
        self.frozen = self.seen.by_name or not is_known_draft
        self.needed: list[tuple[str, ...]] = []
        self.known_needs: set[tuple[str, ...]] = set()

    def whole(self) -> object:
        written = self.schema(self.root, 0)
        if not isinstance(written, dict):
            return written
        kept: dict[tuple[str, ...], object] = {}
        if self.frozen:
            for keyword in DEFS:
                self.needed.extend((keyword, name) for name in self.definitions(keyword))
        for path in self.needed:  # grows while definitions refer to further ones
            kept[path] = self.schema(resolve(self.root, path), 1)
        for keyword in DEFS:
            names = [name for name in self.definitions(keyword) if (keyword, name) in kept]
            if names:
                written[keyword] = {name: kept[keyword, name] for name in names}
        return written

    def definitions(self, keyword: str) -> dict[str, Any]:
        schemas = self.root.get(keyword)
        return schemas if isinstance(schemas, dict) else {}

    def schema(self, node: Any, depth: int) -> Any:
        if isinstance(node, dict) and depth <= MAX_DEPTH:
            while "$ref" in node and depth <= MAX_DEPTH:
                inlined = self.inlined(node)
                if inlined is None:
                    self.need(node["$ref"])
                    break
                if not isinstance(inlined, dict):
                    return inlined
                node, depth = inlined, depth + 1
            if depth > MAX_DEPTH:
                self.need_all(node)
                return node
            written: dict[str, Any] = {}
            for key, value in node.items():
                self.keyword(node, key, value, written, depth)
            return written if self.seen.by_path else _nullable(written)
        self.need_all(node)
        return node

    def keyword(self, node: dict[str, Any], key: str, value: Any, into: dict[str, Any], depth: int) -> None:
        """Write one keyword of a schema, or omit it."""
        if key in DEFS and node.get(key) is self.root.get(key):
            return
        if self.says_nothing(node, key, value):
            return
        if key == "description" and isinstance(value, str):
            into[key] = one_line(value)
        elif key == "examples" and isinstance(value, list):
            into[key] = value[:1]
        elif key in LITERALS:
            into[key] = value
        elif key in MANY and isinstance(value, list):
            into[key] = [self.schema(item, depth + 1) for item in value]
        elif key in ONE:
            into[key] = self.schema(value, depth + 1)
        elif key in MAPS and isinstance(value, dict):
            into[key] = {name: self.schema(item, depth + 1) for name, item in value.items()}
        else:
            self.need_all(value)
            into[key] = value

    def says_nothing(self, node: dict[str, Any], key: str, value: Any) -> bool:
        if key == "$schema":
            return not self.frozen and not (self.keeps_draft and bool(value == self.root.get(key)))
        if key == "title":
            # Next to a constant, the title names the choice; elsewhere it repeats the property name.
            return isinstance(value, str) and not ("const" in node and "description" not in node)
        if key == "$comment":
            return True
        if key == "description":
            return isinstance(value, str) and not value.strip()
        if key == "required":
            return isinstance(value, list) and not value
        if key == "additionalProperties":
            # `1 == True` in Python, so compare by identity.
            is_open = value is True or (isinstance(value, dict) and not value)
            return is_open and not (self.seen.unevaluated or self.seen.by_path)
        if key == "examples":
            return not value or any(word in node for word in ("enum", "const", "default", "format"))
        return key in FALSE_IS_NOTHING and value is False

    def inlined(self, node: dict[str, Any]) -> Any:
        """Return the replacement of a reference, or None if the reference has to stay.

        A definition with one use cannot be recursive: its only use would be inside itself, and it would be unreachable.
        """
        path = pointer(node["$ref"])
        if self.frozen or path is None or len(path) != 2 or self.seen.uses.get(path) != 1:
            return None
        own = {key: value for key, value in node.items() if key != "$ref"}
        if node is self.root:
            own = {key: value for key, value in own.items() if key not in DEFS}
        if not ANNOTATIONS.issuperset(own.keys() - {"$schema"}):
            return None
        target = resolve(self.root, path)
        if not isinstance(target, dict):
            return target if isinstance(target, bool) and not own else None
        merged = {**target, **own}
        here, there = own.get("description"), target.get("description")
        if here != there and all(isinstance(text, str) and text for text in (here, there)):
            merged["description"] = f"{here} {there}"
        return merged

    def need(self, ref: object) -> None:
        path = pointer(ref)
        if path is None or len(path) < 2 or path[0] not in DEFS or self.frozen:
            return
        definition = path[:2]
        if definition not in self.known_needs and definition[1] in self.definitions(definition[0]):
            self.known_needs.add(definition)
            self.needed.append(definition)

    def need_all(self, node: Any) -> None:
        """Keep every definition that an unchanged part refers to."""
        stack = [node]
        while stack:
            value = stack.pop()
            if isinstance(value, dict):
                self.need(value.get("$ref"))
                stack.extend(value.values())
            elif isinstance(value, list):
                stack.extend(value)


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    """Rewrite `anyOf: [T, null]` as a list of types, if that accepts the same values."""
    branches = node.get("anyOf")
    if not isinstance(branches, list) or not ANNOTATIONS.issuperset(node.keys() - {"anyOf"}):
        return node
    if not all(isinstance(branch, dict) and isinstance(branch.get("type"), str) for branch in branches):
        return node
    if all(len(branch) == 1 for branch in branches):
        names = list(dict.fromkeys(branch["type"] for branch in branches))
        return {"type": names[0] if len(names) == 1 else names, **_without(node, "anyOf")} if names else node
    rest = [branch for branch in branches if branch != {"type": "null"}]
    if len(rest) != 1 or len(branches) != 2 or rest[0]["type"] == "null":
        return node
    branch = rest[0]
    if not TYPED.issuperset(branch) or not node.keys().isdisjoint(branch):
        return node
    merged = {**branch, "type": [branch["type"], "null"], **_without(node, "anyOf")}
    if isinstance(branch.get("enum"), list) and None not in branch["enum"]:
        merged["enum"] = [*branch["enum"], None]
    return merged


def _without(node: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name != key}
