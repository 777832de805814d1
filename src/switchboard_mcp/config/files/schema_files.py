"""The JSON Schemas of Switchboard's files, as they come with the package.

`scripts/schemas.py` writes them from the models. Not needed for serving.
"""

from __future__ import annotations

import os

import switchboard_mcp

FOLDER = os.path.join(os.path.dirname(switchboard_mcp.__file__), "schemas")
# Each schema, and the file that it describes.
SCHEMAS = {
    "config": "switchboard.config.json",
    "approvals": "switchboard.approvals.json",
    "lock": "switchboard.lock.json",
    "message": "a message in .switchboard/inbox/",
    "action": "the action of a message",
    "receipt": "a receipt in .switchboard/outbox/",
    "evidence-report": "artifacts/switchboard-mcp/report.json",
    "evidence-metrics": "artifacts/switchboard-mcp/metrics.json",
    "evidence-stamp": "artifacts/switchboard-mcp/stamp.json",
}


def schema_file(name: str) -> str:
    """Return the file name of a schema."""
    return f"switchboard.{name}.schema.json"


def read_schema(name: str) -> bytes:
    """Return the content of a schema."""
    with open(os.path.join(FOLDER, schema_file(name)), "rb") as file:
        return file.read()
