"""Random arguments for the tools of a catalog, valid by their JSON Schema or with one fault, for `program_checks`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from switchboard_mcp.suites.schema_compaction import pointer, resolve

MAX_DEPTH = 6
TRIES = 6
WORDS = ("alpha", "beta", "main", "2026-01-31", "https://example.org/a", "a@example.org", "x", "Ünï", "")
WRONG: tuple[Any, ...] = ("text", 7, 1.5, True, None, [1, "a"], {"zz_member": 1}, "zz_other")


class Values:
    """Makes values for the parts of one schema."""

    def __init__(self, root: object, rng: random.Random) -> None:
        self.root = root
        self.rng = rng

    def value(self, node: object, depth: int = 0) -> Any:
        """Return a value that the schema probably accepts."""
        if not isinstance(node, dict):
            return self.rng.choice(("text", 3, True))
        if "$ref" in node:
            path = pointer(node["$ref"])
            return self.value(resolve(self.root, path) if path is not None else None, depth + 1)
        if "const" in node:
            return node["const"]
        if node.get("enum"):
            return self.rng.choice(node["enum"])
        for keyword in ("anyOf", "oneOf"):
            if node.get(keyword):
                option = self.rng.choice(node[keyword])
                others = {key: each for key, each in node.items() if key != keyword}
                return self.value({**others, **option} if isinstance(option, dict) else others, depth + 1)
        if node.get("allOf"):
            merged: dict[str, Any] = {key: each for key, each in node.items() if key != "allOf"}
            for part in node["allOf"]:
                merged |= part if isinstance(part, dict) else {}
            return self.value(merged, depth + 1)
        kind = node.get("type")
        if isinstance(kind, list):
            kind = self.rng.choice(kind)
        if kind is None:
            kind = "object" if "properties" in node else "array" if "items" in node else None
        return self.typed(kind, node, depth)

    def typed(self, kind: object, node: dict[str, Any], depth: int) -> Any:
        """Return a value of one type."""
        if kind == "object":
            return self.members(node, depth)
        if kind == "array":
            low = int(node.get("minItems", 0))
            count = max(low, 0 if depth > MAX_DEPTH else self.rng.randint(0, 2))
            first = node.get("prefixItems") or node.get("items")
            if isinstance(first, list):
                return [self.value(item, depth + 1) for item in first]
            return [self.value(node.get("items"), depth + 1) for _ in range(min(count, 20))]
        if kind in ("integer", "number"):
            low = node.get("minimum", node.get("exclusiveMinimum", 0))
            number = low + (1 if "exclusiveMinimum" in node else 0)
            if kind == "number" and self.rng.random() < 0.5:
                return float(number)
            return int(number) if float(number).is_integer() else int(number) + 1
        if kind == "boolean":
            return self.rng.random() < 0.5
        if kind == "null":
            return None
        return self.rng.choice(WORDS) if kind == "string" else self.rng.choice(("text", 3, True))

    def members(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        """Return an object: the required members, and some of the others."""
        properties = node.get("properties") or {}
        required = node.get("required") or []
        chosen = [
            key for key in properties if key in required or (depth < MAX_DEPTH and self.rng.random() < 0.4)
        ]
        found = {key: self.value(properties[key], depth + 1) for key in chosen}
        if not properties and isinstance(node.get("additionalProperties"), dict):
            found["some key"] = self.value(node["additionalProperties"], depth + 1)
        return found


def validator(schema: object) -> Draft202012Validator | None:
    """Return a validator of arguments, or None if the schema is none."""
    try:
        Draft202012Validator.check_schema(schema)  # type: ignore[arg-type]
    except (SchemaError, RecursionError):
        return None
    return Draft202012Validator(schema)  # type: ignore[arg-type]


def valid_arguments(schema: object, rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Yield arguments that the schema accepts."""
    judge = validator(schema)
    values = Values(schema, rng)
    for _ in range(count):
        for _ in range(TRIES):
            found = values.value({"type": "object"} | schema if isinstance(schema, dict) else schema)
            if isinstance(found, dict) and (judge is None or judge.is_valid(found)):
                yield found
                break


def wrong_arguments(
    schema: object, arguments: dict[str, Any], rng: random.Random
) -> dict[str, dict[str, Any]]:
    """Return faulty arguments by kind of fault."""
    judge = validator(schema)
    if judge is None or not isinstance(schema, dict):
        return {}
    faults: dict[str, dict[str, Any]] = {}
    required = [key for key in schema.get("required") or [] if key in arguments]
    if required:
        gone = rng.choice(required)
        faults["missing argument"] = {key: value for key, value in arguments.items() if key != gone}
    if schema.get("additionalProperties") in (None, False):
        faults["unknown argument"] = {**arguments, "zz_unknown": 1}
    for key in rng.sample(list(arguments), len(arguments)):
        # A number for an integer, and a text for a list of texts, are no faults that a type can show.
        options = [one for one in WRONG if not judge.is_valid({**arguments, key: one})]
        if options:
            faults["wrong type"] = {**arguments, key: rng.choice(options)}
            break
    return faults
