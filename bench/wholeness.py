"""Finds what a model needs for a call and is lost between a child's schema and what Switchboard shows of it.

Reads the schemas by itself, so that it does not repeat a mistake of the code it checks: every parameter at every depth
with its name and required mark, its type, and every choice must stand in the signature, and in the compacted schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from switchboard_mcp.cli.catalogs import read_catalog
from switchboard_mcp.suites.schema_compaction import compact
from switchboard_mcp.suites.signature import signature

NESTED = ("items", "additionalProperties", "not")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def lost(catalog: Path) -> list[str]:
    """Return the tools that lose something in what a model is shown."""
    found = []
    for server in read_catalog(str(catalog)):
        for tool in server.tools:
            schema = msgspec.json.decode(tool.input_schema) if tool.input_schema else {}
            needed = {*needs(schema, schema, ())}
            line = signature(schema, 0)
            shown = compact(schema)
            gone = [need for need in needed if not is_in_signature(need, line)]
            if gone or needed - {*needs(shown, shown, ())}:
                found.append(f"{server.title}.{tool.name}: {gone[:3]}")
    return found


def is_in_signature(need: tuple[str, str], line: str) -> bool:
    """Return True if a signature contains the need."""
    kind, value = need
    if kind in ("required", "optional"):
        mark = ": " if kind == "required" else "?: "
        quoted = json.dumps(value, ensure_ascii=False)
        return any(f"{name}{mark}" in line for name in (value, quoted))
    return value in line


def needs(schema: Any, root: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield names with their marks, types and choices, at every depth."""
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        if reference not in path:
            yield from needs(resolved(reference, root), root, (*path, reference))
        return
    for value in schema.get("enum", []):
        yield "choice", json.dumps(value, ensure_ascii=False)
    kinds = schema.get("type")
    if not schema.get("enum") and "const" not in schema:
        for kind in [kinds] if isinstance(kinds, str) else kinds or []:
            if kind in ("string", "integer", "number", "boolean"):
                yield "type", kind
    required = schema.get("required") or []
    properties = schema.get("properties")
    for name, value in properties.items() if isinstance(properties, dict) else ():
        yield ("required" if name in required else "optional"), name
        yield from needs(value, root, path)
    for key in NESTED:
        yield from needs(schema.get(key), root, path)
    for key in LISTS:
        for part in schema.get(key) or []:
            yield from needs(part, root, path)


def resolved(reference: str, root: Any) -> Any:
    found = root
    for step in filter(None, reference.removeprefix("#").split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found
