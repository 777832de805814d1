"""The JSON Schemas of the three artifacts, made from their structs.

Never imported while serving. `python -m switchboard_mcp.observe.evidence_schema NAME` writes one to stdout; NAME is
evidence-report, evidence-metrics or evidence-stamp.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from switchboard_mcp.config.schema import field_descriptions
from switchboard_mcp.observe import evidence

SCHEMAS: dict[str, type[msgspec.Struct]] = {
    "evidence-report": evidence.Report,
    "evidence-metrics": evidence.Metrics,
    "evidence-stamp": evidence.Stamp,
}


def json_schema(name: str) -> dict[str, Any]:
    """The schema of one artifact as plain values."""
    root_type = SCHEMAS[name]
    _, definitions = msgspec.json.schema_components((root_type,), ref_template="#/$defs/{name}")
    models: dict[str, type[msgspec.Struct]] = {one: getattr(evidence, one) for one in definitions}
    words = field_descriptions(set(models.values()))
    for one, definition in definitions.items():
        definition.pop("title", None)
        for field in msgspec.structs.fields(models[one]):
            definition["properties"][field.encode_name]["description"] = words[one, field.name]
    root = definitions.pop(root_type.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Switchboard {name.replace('-', ' ')}",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def render(name: str) -> str:
    """The schema as the text of its file."""
    return json.dumps(json_schema(name), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render(sys.argv[1]))
