"""A child whose calls wait for one another, so that a test never has to guess how long something takes.

`hold(name)` reports progress and answers when `release(name)` is called; `held(name)` answers once it is being held,
`dropped(name)` once it was cancelled. `change` says that the tools are others now. `blow(bytes)` reports progress until
so much has been said, `wait(path)` reports progress and answers when a file is there. Standard library only.
"""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.children.plain_child import Child, Json, send, text


class Gate(Child):
    tools = ("echo", "hold", "release", "held", "dropped", "change", "blow", "wait")

    def __init__(self) -> None:
        self.holding: dict[str, object] = {}
        self.gone: set[str] = set()
        self.waiting: list[tuple[str, str, object]] = []

    def receive(self, message: Json, line: bytes) -> None:
        if message["method"] == "notifications/cancelled":
            wanted = message["params"]["requestId"]
            for name, id in list(self.holding.items()):
                if id == wanted:
                    del self.holding[name]
                    self.gone.add(name)
            self.look()
        else:
            super().receive(message, line)

    def result(self, method: str, params: Json) -> Json:
        found = super().result(method, params)
        if method == "initialize":
            found["capabilities"] = {"tools": {"listChanged": True}, "logging": {}}
        return found

    def call(self, request_id: object, params: Json, line: bytes) -> None:
        tool, args = params["name"], params.get("arguments") or {}
        name = str(args.get("message", ""))
        token = (params.get("_meta") or {}).get("progressToken")
        if tool == "hold":
            self.holding[name] = request_id
            self.tell(token, 1, f"holding {name}")
            self.look()
        elif tool == "release":
            self.tell(token, 1, "releasing")
            self.answer(self.holding.pop(name), text(f"released {name}"))
            self.answer(request_id, text("done"))
        elif tool in ("held", "dropped"):
            self.waiting.append((tool, name, request_id))
            self.look()
        elif tool == "change":
            send({"method": "notifications/tools/list_changed"})
            self.answer(request_id, text("changed"))
        elif tool == "blow":
            for step in range(int(name) // 10_000):
                self.tell(token, step, "x" * 10_000)
            self.answer(request_id, text("blown"))
        elif tool == "wait":
            self.tell(token, 1, "waiting")
            while not os.path.exists(name):
                time.sleep(0.005)
            self.answer(request_id, text("found"))
        else:
            super().call(request_id, params, line)

    def tell(self, token: object, progress: int, message: str) -> None:
        if token is not None:
            params = {"progressToken": token, "progress": progress, "message": message}
            send({"method": "notifications/progress", "params": params})

    def look(self) -> None:
        """Answer those who waited for what is so now."""
        for entry in list(self.waiting):
            tool, name, id = entry
            if name in (self.holding if tool == "held" else self.gone):
                self.waiting.remove(entry)
                self.answer(id, text(tool))


Gate().serve()
