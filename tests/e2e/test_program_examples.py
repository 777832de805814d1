"""The worked examples of docs/programs.md run as written, with published servers, and give the values that it shows."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.host import SWITCHBOARD
from tests.e2e.sdk import sdk_host, text_of
from tests.e2e.servers import Servers
from tests.e2e.workspaces import REPO, add_child, configure

NAMES = {"files": "filesystem", "git": "git", "time": "time", "memory": "memory"}


def examples() -> list[tuple[str, object]]:
    """Each program of the page, and the value below it."""
    page = (REPO / "docs/programs.md").read_text()
    found = re.findall(r"```python\n(.*?)```\n\n```json\n(.*?)```", page, re.DOTALL)
    return [(code, json.loads(value)) for code, value in found]


def project(folder: Path) -> None:
    """Three files in three commits of two people."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    texts = {"a.py": "# TODO one\n# TODO two\n", "b.py": "pass\n", "c.py": "# TODO three\n"}
    for (name, text), author in zip(texts.items(), ("ann", "bob", "ann"), strict=True):
        (folder / name).write_text(text)
        who = ["-c", f"user.name={author}", "-c", f"user.email={author}@example.org"]
        subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)
        subprocess.run(["git", "-C", str(folder), *who, "commit", "-qm", name], check=True)


@pytest.mark.asyncio(loop_scope="function")
async def test_the_examples_give_the_values_on_the_page(workspace: Path, servers: Servers) -> None:
    servers.folder = workspace / "project"
    servers.folder.mkdir()
    project(servers.folder)
    for child, name in NAMES.items():
        add_child(workspace, child, servers.command(name), env=servers.env(name, "child"))
    configure(workspace, {"programs": {"enabled": True}})
    found = examples()
    assert len(found) == 3
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode="legacy") as host:
        for code, value in found:
            args = {"code": code, "input": {"folder": str(servers.folder)}}
            result = await host.client.call_tool(
                "program_suite", {"action": "call", "subtool": "run", "args": args}
            )
            assert not result.is_error, text_of(result)
            assert json.loads(text_of(result))["value"] == value
        assert host.asked.count("form") == 1  # only the last one writes
