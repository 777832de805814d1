"""Long results through the program: a head, the rest by its handle and as a resource, and what that saved."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.e2e.host import LATEST, switchboard
from tests.e2e.shell import run
from tests.e2e.workspaces import add_child, configure, scripted
from tests.patience import PATIENCE_S

CHILD = """
import json
class Rows(Child):
    def call(self, request_id, params, line):
        rows = [{"id": number, "name": f"row {number}", "note": "n" * 40} for number in range(400)]
        long = params["arguments"]["message"] == "long"
        self.answer(request_id, text(json.dumps({"rows": rows}, indent=1) if long else "short"))
Rows().serve()
"""


def test_a_long_result_is_read_in_parts_and_tokens_says_what_that_saved(workspace: Path) -> None:
    add_child(workspace, "rows", scripted(CHILD))
    configure(workspace, {"results": {"maxTokens": 3000}})
    state = workspace / "state"
    with switchboard(workspace, env={**os.environ, "XDG_STATE_HOME": str(state)}) as host:
        info = {"name": "opencode", "version": "1.18.33"}
        host.result("initialize", {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": info})
        host.notify("notifications/initialized")
        (block,) = host.call("rows_suite", "echo", message="long")["content"]
        assert block["text"].startswith("Shape: {rows:[400]{id:int,name:str,note:str}}\n")
        handle = block["text"].rpartition('"handle":"')[2].partition('"')[0]
        wanted = {"handle": handle, "select": "rows[399].name"}
        picked = host.call("rows_suite", "switchboard_result", **wanted)
        assert picked["content"][0]["text"] == '"row 399"'
        (resource,) = host.result("resources/list")["resources"]
        (whole,) = host.result("resources/read", {"uri": resource["uri"]})["contents"]
        assert len(json.loads(whole["text"])["rows"]) == 400
        assert host.call("rows_suite", "echo", message="short")["content"][0]["text"] == "short"
        deadline = time.monotonic() + PATIENCE_S
        while not any('"reads":1' in file.read_text() for file in state.rglob("counts.jsonl")):
            assert time.monotonic() < deadline
            host.request("ping")
    done = run(workspace, "tokens", "--json", XDG_STATE_HOME=str(state))
    saved = json.loads(done.stdout)["results"]["rows"]
    assert saved["saved"] > 10_000
    assert (saved["shortened"], saved["reads"]) == (1, 1)
