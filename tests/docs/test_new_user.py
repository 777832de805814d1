"""Somebody with servers in a host follows the README's quick start alone, and has a host config that works."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from scripts.pages import REPO, blocks
from tests.e2e.host import Host
from tests.patience import PATIENCE_S

README = (REPO / "README.md").read_text(encoding="utf-8")
QUICK_START = README.partition("## Quick start")[2].partition("**No servers yet?**")[0]


def typed() -> list[list[str]]:
    """The commands of the three steps, but for installing."""
    lines = [line for kind, block in blocks(QUICK_START) if kind == "console" for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]


def test_following_the_quick_start_leads_to_a_host_config_that_works(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "agents"
    for each in (home / ".cursor", folder):
        each.mkdir(parents=True)
    server = {"command": sys.executable, "args": [str(REPO / "examples" / "demo" / "tracker.py")]}
    file = home / ".cursor" / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"tracker": server}}))
    before = file.read_bytes()
    environment = {**os.environ, "HOME": str(home)}
    commands = typed()
    assert [words[1] for words in commands] == ["init", "init", "doctor", "tokens"]
    for words in [*commands, ["switchboard", "revert"]]:
        # Where a person would be asked, nobody is here to answer.
        agreed = ["--yes"] if words[1] in ("init", "revert") and "--dry-run" not in words else []
        line = [sys.executable, "-m", "switchboard_mcp", *words[1:], *agreed]
        if words[1] == "revert":
            entry = json.loads(file.read_bytes())["mcpServers"]
            assert list(entry) == ["switchboard"]
            with Host(
                [entry["switchboard"]["command"], *entry["switchboard"]["args"]], env=environment
            ) as host:
                host.initialize()
                assert host.tool_names() == ["tracker_suite"]
                assert not host.call("tracker_suite", "list_issues").get("isError")
        done = subprocess.run(
            line,
            cwd=folder,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    assert file.read_bytes() == before
