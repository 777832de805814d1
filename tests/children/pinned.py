"""A child that reads its tools from `offer.json` beside it for every request.

`instructions`, `tools`, `prompts` and `pages`, the contents by URI, are what it tells; asked for prompts that are
`null`, it ends. Each start is noted in `starts`. A call of `echo` with the message `change` puts `next.json` in the
place of the file, and tells so.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.children.plain_child import Child, Json, record, send
else:  # in a sandbox, nothing above the folder of this file can be read
    from plain_child import Child, Json, record, send

HERE = Path(sys.argv[1])


class Pinned(Child):
    """The child, with its offer in `offer.json`."""

    def offer(self) -> Json:
        offer: Json = json.loads((HERE / "offer.json").read_text())
        return offer

    def receive(self, message: Json, line: bytes) -> None:
        if message["method"] == "prompts/list":
            if self.offer()["prompts"] is None:
                sys.exit(3)
            self.answer(message["id"], {"prompts": self.offer()["prompts"]})
        elif message["method"] == "prompts/get":
            self.answer(message["id"], {"messages": []})
        elif message["method"] == "resources/read" and "pages" in self.offer():
            uri = message["params"]["uri"]
            self.answer(message["id"], {"contents": [{"uri": uri, **self.offer()["pages"][uri]}]})
        else:
            super().receive(message, line)

    def result(self, method: str, params: Json) -> Json:
        result = super().result(method, params)
        if method == "initialize":
            told = self.offer().get("instructions")
            capabilities: Json = {"tools": {"listChanged": True}}
            if "prompts" in self.offer():
                capabilities["prompts"] = {}
            if "pages" in self.offer():
                capabilities["resources"] = {}
            return {**result, "capabilities": capabilities, **({"instructions": told} if told else {})}
        return result

    def page(self, cursor: str | None) -> Json:
        return {"tools": self.offer()["tools"]}

    def call(self, request_id: object, params: Json, line: bytes) -> None:
        super().call(request_id, params, line)
        if params.get("arguments", {}).get("message") == "change":
            os.replace(HERE / "next.json", HERE / "offer.json")
            send({"method": "notifications/tools/list_changed"})


record(str(HERE / "starts"))
Pinned().serve()
