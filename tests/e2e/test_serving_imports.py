"""What serving loads: nothing beyond asyncio, msgspec, our own modules and a short list of cheap ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.host import Json
from tests.e2e.workspaces import MOCK_CHILD, add_child
from tests.patience import PATIENCE_S

# Run in place of `switchboard`: notes what was loaded beyond asyncio, msgspec and, where it is installed, uvloop.
SPY = """
import asyncio, msgspec, sys
try:
    import uvloop
except ImportError:
    pass
before = set(sys.modules)
sys.argv = ["switchboard", *sys.argv[1:]]
from switchboard_mcp.__main__ import main
code = main()
added = sorted(set(sys.modules) - before)
import json
print(json.dumps(added), file=sys.stderr)
sys.exit(code)
"""
LIST = [("initialize", {"protocolVersion": "2025-11-25"}), ("tools/list", {})]
INTROSPECT = ("tools/call", {"name": "mock_suite", "arguments": {"action": "introspect"}})
CALL = (
    "tools/call",
    {"name": "mock_suite", "arguments": {"action": "call", "subtool": "echo", "args": {"message": "x"}}},
)
# Checksums: of names that clash or are cut, and of how a child is started, by which the catalog knows it.
CHEAP = {"zlib", "hashlib", "_hashlib", "_blake2", "_md5", "_sha1", "_sha2", "_sha256", "_sha3", "_sha512"}
# With the first child: to adopt what a child leaves behind, Switchboard has to call prctl.
WITH_CHILD = CHEAP | {"_ctypes", "ctypes", "ctypes._endian"}
# Each costs more than all of serving, or has no business here.
NEVER = {
    "anyio",
    "argparse",
    "dataclasses",
    "fnmatch",
    "glob",
    "httpx",
    "json",
    "mcp",
    "pathlib",
    "pydantic",
    "shutil",
    "starlette",
    "tempfile",
    "tomllib",
    "unicodedata",
    "yaml",
}


def loaded(workspace: Path, requests: list[tuple[str, Json]], *arguments: str) -> set[str]:
    """Modules that serving these requests adds, in this process: it must not hand them to a broker."""
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        for id, (method, params) in enumerate(requests)
    ]
    ran = subprocess.run(
        [sys.executable, "-c", SPY, *arguments],
        cwd=workspace,
        env={**os.environ, "SWITCHBOARD_BROKER": "off"},
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {answer["id"] for answer in answers if "result" in answer} == set(range(len(requests)))
    return set(json.loads(ran.stderr.splitlines()[-1]))


def strangers(modules: set[str]) -> set[str]:
    """Those that are not ours, nor parts of an extension module that is there already."""
    return {
        name
        for name in modules
        if not name.startswith(("switchboard_mcp", "_cython", "cython_runtime", "uvloop"))
    }


@pytest.fixture
def served(workspace: Path) -> Path:
    """A workspace with a child."""
    add_child(workspace, "mock", MOCK_CHILD, description="A pretend browser.")
    return workspace


def test_serving_loads_nothing_beyond_a_few_cheap_modules(served: Path) -> None:
    # A child that takes long to start gives changes of the config the time to be watched for.
    assert strangers(loaded(served, LIST)) <= CHEAP
    with_child = loaded(served, [*LIST, CALL, INTROSPECT], "--no-reload")
    assert strangers(with_child) <= WITH_CHILD
    assert not {name for name in with_child if name.startswith("switchboard_mcp.sandbox")}


def test_what_is_never_needed_is_never_loaded(served: Path) -> None:
    modules = loaded(served, [*LIST, INTROSPECT, CALL])
    assert not {name.partition(".")[0] for name in modules} & NEVER
    assert "importlib.metadata" not in modules


def test_serving_loads_no_other_command(served: Path) -> None:
    modules = loaded(served, [*LIST, INTROSPECT, CALL])
    commands = {name for name in modules if name.startswith("switchboard_mcp.cli.")}
    assert commands == {"switchboard_mcp.cli.serve_args"}


def test_a_start_that_only_lists_loads_no_code_for_mistakes(served: Path) -> None:
    modules = loaded(served, LIST)
    assert "switchboard_mcp.config.validation_errors" not in modules


def test_what_is_switched_off_costs_no_import(served: Path) -> None:
    modules = loaded(served, [*LIST, INTROSPECT, CALL])
    parts = (
        "switchboard_mcp.mail",
        "switchboard_mcp.inprocess.mcp_server",
        "switchboard_mcp.inprocess.server_app",
        "switchboard_mcp.children.builtin",
        "switchboard_mcp.gateway.telemetry",
        "switchboard_mcp.observability.metrics",
        "opentelemetry",
        "switchboard_mcp.observability.recent_errors",
        "switchboard_mcp.suites.savings",
        "switchboard_mcp.suites.search",
        "switchboard_mcp.gateway.suites.switchboard_suite",
        "switchboard_mcp.gateway.suites.profile_suite",
        "switchboard_mcp.gateway.suites.suite_cost",
        "switchboard_mcp.gateway.gate.",
        "switchboard_mcp.policy.gate",
    )
    assert not [name for name in modules if name.startswith(parts)]


def test_watching_for_changes_loads_little_and_not_before_the_first_answer(served: Path) -> None:
    watchers = {"switchboard_mcp.gateway.reload", "switchboard_mcp.system.file_watch"}
    assert not watchers & loaded(served, LIST)
    slow = {"action": "call", "subtool": "slow", "args": {"seconds": 2}}
    modules = loaded(served, [*LIST, ("tools/call", {"name": "mock_suite", "arguments": slow})])
    assert watchers <= modules
    assert not {name.partition(".")[0] for name in modules} & NEVER
    assert strangers(modules) <= WITH_CHILD | {"_queue", "concurrent.futures.thread", "queue"}


def test_the_switchboard_suite_loads_nothing_that_serving_avoids(served: Path) -> None:
    (served / "switchboard.config.json").write_text('{"find": {"enabled": true}}')
    arguments = {"action": "call", "subtool": "find", "args": {"query": "echo"}}
    modules = loaded(
        served, [*LIST, ("tools/call", {"name": "switchboard_suite", "arguments": arguments})], "--no-reload"
    )
    assert "switchboard_mcp.gateway.suites.switchboard_suite" in modules
    assert not {name.partition(".")[0] for name in modules} & NEVER


def test_mail_loads_nothing_that_serving_avoids(workspace: Path) -> None:
    (workspace / "switchboard.config.json").write_text('{"mail": {"enabled": true}}')
    arguments = {"action": "call", "subtool": "register_chat_agent", "args": {"name": "ada"}}
    modules = loaded(workspace, [*LIST, ("tools/call", {"name": "mail_suite", "arguments": arguments})])
    assert "switchboard_mcp.mail.store.store" in modules
    assert not {name.partition(".")[0] for name in modules} & NEVER
