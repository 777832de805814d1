"""The JSON Schemas of what stands in the files: message, receipt, action; made from the shapes.

Never imported while serving. `python -m switchboard_mcp.mail.schemas FOLDER` writes them anew, and with `--check`
tells whether they are current. Owns how shapes become schemas; the words stand in `letters`.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
from typing import Any

import msgspec

from switchboard_mcp.core.agentnames import AGENT
from switchboard_mcp.core.letterfile import MESSAGE_ID
from switchboard_mcp.mail import letters

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_AGENT = f"^{AGENT}$"
_ID = f"^{MESSAGE_ID}$"
_TIME = {"format": "date-time"}
_SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "message": {
        "id": {"pattern": _ID},
        "sender": {"pattern": _AGENT},
        "recipient": {"pattern": _AGENT},
        "payload": {"maxLength": letters.MOST_PAYLOAD_BYTES},
        "createdAt": _TIME,
        "metadata": {
            "properties": {
                "priority": {"enum": list(letters.PRIORITIES)},
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
    "receipt": {
        "id": {"pattern": f"^receipt_{MESSAGE_ID}$"},
        "inReplyTo": {"pattern": _ID},
        "processedAt": _TIME,
    },
}
_MODELS: dict[str, type[msgspec.Struct]] = {"message": letters.Message, "receipt": letters.Receipt}
_PURPOSES = {
    "delegate_task": "Lead to agent: assign work to an agent",
    "request_review": "Agent to reviewer: request a review of code or a plan",
    "submit_result": "Agent to lead: return completed work",
    "status_update": "Any to any: progress notification",
    "execute": "Lead to terminal agent: type a command into its terminal",
}


def schemas() -> dict[str, dict[str, Any]]:
    """Each schema by the name of its file."""
    found = {f"switchboard.{name}.schema.json": _schema(name, model) for name, model in _MODELS.items()}
    found["switchboard.action.schema.json"] = {
        "$schema": DIALECT,
        "title": "Switchboard action",
        "description": "What a message asks of its recipient.",
        "oneOf": [{"const": action, "description": _PURPOSES[action]} for action in letters.ACTIONS],
    }
    return found


def _schema(name: str, model: type[msgspec.Struct]) -> dict[str, Any]:
    (_,), definitions = msgspec.json.schema_components((model,), ref_template="#/$defs/{name}")
    shape = definitions[model.__name__]
    described = _field_descriptions()
    for field in msgspec.structs.fields(model):
        part = shape["properties"][field.encode_name]
        part |= _SHAPES[name].get(field.encode_name, {})
        part["description"] = described[model.__name__, field.name]
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


def _field_descriptions() -> dict[tuple[str, str], str]:
    """The text under each field of the shapes; Python itself throws it away."""
    found: dict[tuple[str, str], str] = {}
    for shape in ast.parse(inspect.getsource(letters)).body:
        if not isinstance(shape, ast.ClassDef):
            continue
        for field, text in zip(shape.body, shape.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[shape.name, name] = " ".join(words.split())
    return found


def render() -> dict[str, str]:
    """The text of each file."""
    return {
        name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in schemas().items()
    }


def main(folder: str, *, check: bool) -> int:
    """Write the files, or tell which are not current."""
    stale = []
    for name, text in render().items():
        path = os.path.join(folder, name)
        if not os.path.exists(path) or _content(path) != text:
            stale.append(path)
            if not check:
                os.makedirs(folder, exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
    if check and stale:
        sys.stderr.write("".join(f"{path} is not current: run `make schema`\n" for path in stale))
    return 1 if check and stale else 0


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], check="--check" in sys.argv[2:]))
