"""The JSON Schemas of the files people write or read, made from the models for editors.

Never imported while serving. `python -m switchboard_mcp.config.schema NAME > switchboard.NAME.schema.json` writes one
anew. Owns how models become schema; the words stand with the models.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from typing import Any

import msgspec

from switchboard_mcp.config import approvals, lockfile, models

_REF = "#/$defs/{name}"


def json_schema() -> dict[str, Any]:
    """The schema as plain values."""
    (_, _), definitions = msgspec.json.schema_components(
        (models.Config, models.Entry), schema_hook=_entry_for_object, ref_template=_REF
    )
    found = {name: getattr(models, name) for name in definitions}
    return _document("Switchboard configuration", "Config", definitions, found)


def approvals_schema() -> dict[str, Any]:
    """The same for what is approved."""
    _, definitions = msgspec.json.schema_components((approvals.Approvals,), ref_template=_REF)
    found = {name: getattr(approvals, name) for name in definitions}
    return _document("Switchboard approvals", "Approvals", definitions, found)


def lock_schema() -> dict[str, Any]:
    """The same for what children offered when they were locked."""
    _, definitions = msgspec.json.schema_components((lockfile.LockFile,), ref_template=_REF)
    found = {name: getattr(lockfile, name) for name in definitions}
    return _document("Switchboard lock", "LockFile", definitions, found)


SCHEMAS = {"config": json_schema, "approvals": approvals_schema, "lock": lock_schema}


def _document(
    title: str, root_name: str, definitions: dict[str, Any], found: dict[str, type[msgspec.Struct]]
) -> dict[str, Any]:
    described = field_descriptions(set(found.values()))
    for name, definition in definitions.items():
        _describe(definition, found[name], described)
    root = definitions.pop(root_name)
    properties = {"$schema": {"type": "string", "description": "Where editors find this schema."}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": root["description"],
        "type": "object",
        "properties": properties | root["properties"],
        **({"required": root["required"]} if root.get("required") else {}),
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _entry_for_object(kind: type) -> dict[str, Any]:
    # Entries are read one by one, so that a wrong one leaves the others whole; hence `object` in the model.
    if kind is object:
        return {"$ref": _REF.format(name=models.Entry.__name__)}
    raise NotImplementedError(kind)


def _describe(
    definition: dict[str, Any], model: type[msgspec.Struct], described: dict[tuple[str, str], str]
) -> None:
    definition.pop("title", None)
    definition.setdefault("properties", {})
    defaults = {}
    if not any(field.required for field in msgspec.structs.fields(model)):
        defaults = msgspec.to_builtins(model())
    for field in msgspec.structs.fields(model):
        shape = definition["properties"][field.encode_name]
        shape["description"] = described[model.__name__, field.name]
        shape.pop("default", None)
        if defaults.get(field.encode_name) is not None:
            shape["default"] = defaults[field.encode_name]


def field_descriptions(described: set[type]) -> dict[tuple[str, str], str]:
    """The text under each field of the models, wherever these stand; Python itself throws it away."""
    found: dict[tuple[str, str], str] = {}
    sources = sorted({model.__module__ for model in described})
    for model in (
        node for source in sources for node in ast.parse(inspect.getsource(sys.modules[source])).body
    ):
        if not isinstance(model, ast.ClassDef):
            continue
        for field, text in zip(model.body, model.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[model.name, name] = " ".join(words.split())
    return found


def render(name: str = "config") -> str:
    """A schema as the text of its file."""
    return json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render(*sys.argv[1:]))
