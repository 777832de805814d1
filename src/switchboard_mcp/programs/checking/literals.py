"""Validates the literal arguments of a program's calls against the schemas of the tools.

Closes what the rules for the type checker leave open, and sees ranges and formats of values that types do not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from switchboard_mcp.ask.schema_check import SchemaMistake, check

PARTS = ("properties", "$defs", "definitions")
# The product's validator is stricter than many servers about alternatives that overlap.
OVERLAP = "must match exactly one"


def mistakes(schema: object, arguments: Mapping[str, Any]) -> Iterator[SchemaMistake]:
    """Yield the mistakes in some of the arguments of a call; others may be missing."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return
    declared = {name: value for name, value in arguments.items() if name in schema["properties"]}
    if not declared:
        return
    part = {key: schema[key] for key in PARTS if key in schema}
    for mistake in check(part, declared):
        if OVERLAP not in mistake.message:
            yield mistake
