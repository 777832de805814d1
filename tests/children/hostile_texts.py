"""A child all of whose texts try to take over the terminal. Standard library only."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.children.plain_child import Child, Json, complain, text

HOSTILE = (
    "evil \x1b]0;owned\x07\x1b[2J\x1b[5;7m\x1bP+q\x1b\\ \x9b2J \x85 \u202egnp\u2066 \u200f \r\x08\x0c\x7f end"
)


class Hostile(Child):
    def result(self, method: str, params: Json) -> Json:
        found = super().result(method, params)
        if method == "initialize":
            found["serverInfo"] = {"name": HOSTILE, "version": HOSTILE, "title": HOSTILE}
            found["instructions"] = HOSTILE
        return found

    def page(self, cursor: str | None) -> Json:
        argument = {"type": "string", "description": HOSTILE, "enum": [HOSTILE], "default": HOSTILE}
        schema = {"type": "object", "properties": {HOSTILE: argument, "message": {"type": "string"}}}
        names = ("echo", "fail", f"tool {HOSTILE}")
        return {
            "tools": [
                {"name": name, "title": HOSTILE, "description": HOSTILE, "inputSchema": schema}
                for name in names
            ]
        }

    def call(self, request_id: object, params: Json, line: bytes) -> None:
        complain(HOSTILE)
        result = text(HOSTILE)
        self.answer(
            request_id, {**result, "isError": params["name"] == "fail", "structuredContent": {"a": HOSTILE}}
        )


if __name__ == "__main__":
    if "crash" in sys.argv:
        complain(HOSTILE)
        sys.exit(3)
    Hostile().serve()
