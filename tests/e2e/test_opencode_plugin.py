"""The plugin for opencode in docs/messaging.md, run by node with the real command, and a client that notes prompts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.host import Json
from tests.e2e.shell import run
from tests.e2e.workspaces import REPO
from tests.patience import PATIENCE_S

DRIVER = """
import { createInterface } from "node:readline"
const { SwitchboardMail } = await import(process.argv[2])
const promptAsync = async ({ path, body }) => console.log(JSON.stringify({ id: path.id, text: body.parts[0].text }))
const plugin = await SwitchboardMail({ client: { session: { promptAsync } }, directory: process.argv[3] })
for await (const line of createInterface({ input: process.stdin })) plugin.event({ event: JSON.parse(line) })
"""
IDLE = {"type": "session.idle", "properties": {"sessionID": "ses_1"}}


def plugin_of_the_guide() -> str:
    page = (REPO / "docs" / "messaging.md").read_text()
    (code,) = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    return str(code)


def test_a_wake_is_one_prompt_and_what_comes_later_wakes_again(workspace: Path, tmp_path: Path) -> None:
    plugin, driver = tmp_path / "plugin.mjs", tmp_path / "driver.mjs"
    plugin.write_text(plugin_of_the_guide())
    driver.write_text(DRIVER)
    for agent in ("lead", "coder"):
        assert run(workspace, "mail", "agents", "add", agent).returncode == 0
    note = workspace / ".switchboard" / "hooks" / "coder.waiter"
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    with subprocess.Popen(
        ["node", driver, plugin, workspace],
        cwd=workspace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path, "SWITCHBOARD_AGENT": "coder"},
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None

        def end_turn() -> None:
            """Let the session become idle, and wait until the plugin waits for mail."""
            assert node.stdin is not None
            node.stdin.write(json.dumps(IDLE) + "\n")
            node.stdin.flush()
            deadline = time.monotonic() + PATIENCE_S
            while not note.exists():
                assert time.monotonic() < deadline, "nothing waits for mail"
                time.sleep(0.01)

        def next_prompt() -> Json:
            assert node.stdout is not None
            prompt: Json = json.loads(node.stdout.readline())
            return prompt

        end_turn()
        assert run(workspace, "mail", "send", "coder", "one", "--as", "lead").returncode == 0
        first = next_prompt()
        assert first["id"] == "ses_1"
        assert "1 unread message for 'coder'" in first["text"]
        end_turn()  # nothing was read, and the turn was about this mail: it is not repeated
        assert run(workspace, "mail", "send", "coder", "two", "--as", "lead").returncode == 0
        assert "2 unread messages for 'coder'" in next_prompt()["text"]
        node.stdin.close()
        assert node.wait(PATIENCE_S) == 0
