#!/usr/bin/env python3
"""Writes the JSON Schemas of the files that people and other programs read, from the models.

scripts/schemas.py           write src/switchboard_mcp/schemas
scripts/schemas.py --check   fail when one is not what would be written
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.inspect import DictType, ListType, Metadata, StructType, Type, UnionType, type_info

from switchboard_mcp.config.agent_names import AGENT
from switchboard_mcp.config.files.approvals import Approvals
from switchboard_mcp.config.files.lock_models import LockFile
from switchboard_mcp.config.models import ChildEntry, Config
from switchboard_mcp.evidence.artifacts import EvidenceReport, Metrics, Stamp
from switchboard_mcp.mail import messages
from switchboard_mcp.mail.store.filenames import MESSAGE_ID

HOME = Path(__file__).resolve().parent.parent / "src" / "switchboard_mcp" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/{name}"
Schema = dict[str, Any]
Model = type[msgspec.Struct]

SETTINGS: dict[str, tuple[Model, ...]] = {
    "config": (Config, ChildEntry),
    "approvals": (Approvals,),
    "lock": (LockFile,),
}
EVIDENCE: dict[str, Model] = {
    "evidence-report": EvidenceReport,
    "evidence-metrics": Metrics,
    "evidence-stamp": Stamp,
}
TITLES = {"config": "configuration"}

_AGENT = f"^{AGENT}$"
_ID = f"^{MESSAGE_ID}$"
_TIME = {"format": "date-time"}
# What the shapes of letters do not say by themselves.
LETTERS: dict[str, tuple[Model, Schema]] = {
    "message": (
        messages.MailMessage,
        {
            "id": {"pattern": _ID},
            "sender": {"pattern": _AGENT},
            "recipient": {"pattern": _AGENT},
            "payload": {"maxLength": messages.MAX_PAYLOAD_BYTES},
            "createdAt": _TIME,
            "metadata": {
                "properties": {
                    "priority": {"enum": list(messages.PRIORITIES)},
                    "ackBy": {"type": "string", **_TIME},
                    "idempotencyKey": {"type": "string", "minLength": 1, "maxLength": 256},
                    "attachment": {
                        "type": "object",
                        "properties": {
                            "file": {"type": "string"},
                            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                            "bytes": {"type": "integer"},
                        },
                    },
                    "verified": {"type": "boolean"},
                    "seal": {"type": "string"},
                }
            },
        },
    ),
    "receipt": (
        messages.Receipt,
        {
            "id": {"pattern": f"^receipt_{MESSAGE_ID}$"},
            "inReplyTo": {"pattern": _ID},
            "processedAt": _TIME,
        },
    ),
}
PURPOSES = {
    "delegate_task": "Lead to agent: assign work to an agent",
    "request_review": "Agent to reviewer: request a review of code or a plan",
    "submit_result": "Agent to lead: return completed work",
    "status_update": "Any to any: progress notification",
    "execute": "Lead to terminal agent: type a command into its terminal",
}


def schemas() -> dict[str, Schema]:
    """Return every schema by its name."""
    return {
        **{name: settings(name, *models) for name, models in SETTINGS.items()},
        **{name: evidence(name, model) for name, model in EVIDENCE.items()},
        **{name: letter(name, model, more) for name, (model, more) in LETTERS.items()},
        "action": {
            "$schema": DIALECT,
            "title": "Switchboard action",
            "description": "What a message asks of its recipient.",
            "oneOf": [{"const": action, "description": PURPOSES[action]} for action in messages.ACTIONS],
        },
    }


def default_values(model: type[msgspec.Struct]) -> dict[str, object]:
    """Return the defaults of all keys; none for what cannot be written without a key, such as a gate rule."""
    try:
        return msgspec.to_builtins(model())  # type: ignore[no-any-return]
    except ValueError:
        return {}


def settings(name: str, *models: Model) -> Schema:
    """Return the schema of a file that people write: unknown keys are refused, defaults are included."""
    definitions = described(*models)
    for known in structs(*models):
        optional = not any(field.required for field in msgspec.structs.fields(known))
        defaults = default_values(known) if optional else {}
        for key, shape in definitions[known.__name__]["properties"].items():
            shape.pop("default", None)
            if defaults.get(key) is not None:
                shape["default"] = defaults[key]
    root = definitions.pop(models[0].__name__)
    properties = {"$schema": {"type": "string", "description": "Where editors find this schema."}}
    return {
        "$schema": DIALECT,
        "title": f"Switchboard {TITLES.get(name, name)}",
        "description": root["description"],
        "type": "object",
        "properties": properties | root["properties"],
        **({"required": root["required"]} if root.get("required") else {}),
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def evidence(name: str, model: Model) -> Schema:
    """Return the schema of a file that only Switchboard writes."""
    definitions = described(model)
    root = definitions.pop(model.__name__)
    title = f"Switchboard {name.replace('-', ' ')}"
    return {"$schema": DIALECT, "title": title, **root, "$defs": dict(sorted(definitions.items()))}


def letter(name: str, model: Model, more: Schema) -> Schema:
    """Return the schema of a file that agents write and read."""
    shape = described(model)[model.__name__]
    for key, part in shape["properties"].items():
        # The description of a member comes last, after its type.
        part |= {**more.get(key, {}), "description": part.pop("description")}
        part.pop("default", None)
    required = [field.encode_name for field in msgspec.structs.fields(model) if field.required]
    return {
        "$schema": DIALECT,
        "title": f"Switchboard {name}",
        "description": shape["description"],
        "type": "object",
        "properties": shape["properties"],
        "required": [*required, *(["error"] if name == "receipt" else [])],
        "additionalProperties": False,
    }


def described(*models: Model) -> dict[str, Schema]:
    """Return the definitions of models and of their members, with the text below each field."""
    _, definitions = msgspec.json.schema_components(models, schema_hook=_entry_for_object, ref_template=REF)
    for model in structs(*models):
        definition, words = definitions[model.__name__], texts(model.__module__)
        definition.pop("title", None)
        definition.setdefault("properties", {})
        for field in msgspec.structs.fields(model):
            definition["properties"][field.encode_name]["description"] = words[model.__name__, field.name]
    return definitions


def structs(*models: Model) -> list[Model]:
    """Return the models and those nested in them."""
    found: dict[Model, None] = {}

    def walk(kind: Type) -> None:
        match kind:
            case StructType(cls=model, fields=fields) if model not in found:
                found[model] = None
                for field in fields:
                    walk(field.type)
            case ListType(item_type=inner) | DictType(value_type=inner) | Metadata(type=inner):
                walk(inner)
            case UnionType(types=kinds):
                for inner in kinds:
                    walk(inner)

    for model in models:
        walk(type_info(model))
    return list(found)


def _entry_for_object(kind: type) -> Schema:
    # Entries are read one by one, so that a wrong one leaves the others whole; hence `object` in the model.
    if kind is object:
        return {"$ref": REF.format(name=ChildEntry.__name__)}
    raise NotImplementedError(kind)


@cache
def texts(module: str) -> dict[tuple[str, str], str]:
    """Return the text below each field of a module's models, which Python itself discards."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        (model.name, name): " ".join(words.split())
        for model in tree.body
        if isinstance(model, ast.ClassDef)
        for name, words in _told(model)
    }


def _told(model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(model.body, model.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, words


def main(arguments: list[str]) -> int:
    """Write the files, or name those that are out of date."""
    stale = 0
    for name, schema in schemas().items():
        path = HOME / f"switchboard.{name}.schema.json"
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in arguments:
            stale += 1
            print(f"{path.name} is not current: run `make schema`")
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
