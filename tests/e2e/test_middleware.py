"""Middleware, limits and cache through real processes, and the worked example as its README shows it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import shell
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.test_serving_imports import CALL, INTROSPECT, LIST, loaded
from tests.e2e.web import serving
from tests.e2e.workspaces import MOCK_CHILD, REPO, add_child, configure

EXAMPLE = REPO / "examples" / "middleware"


@pytest.fixture
def example(workspace: Path) -> Path:
    """The example's own config, with the child where it can be found from here."""
    config = json.loads((EXAMPLE / "switchboard.config.json").read_text())
    config["mcpServers"]["mock"] = {"command": MOCK_CHILD[0], "args": MOCK_CHILD[1:]}
    config["http"] = {"tokens": {"operator": "the-token-of-the-operator"}}
    configure(workspace, config)
    return workspace


@pytest.fixture
def host(example: Path) -> Iterator[Host]:
    with switchboard(example, env={**os.environ, "PYTHONPATH": str(EXAMPLE)}) as host:
        host.initialize()
        yield host


def said(result: Json) -> str:
    text: str = result["content"][0]["text"]
    return text


def test_the_example_fills_in_arguments_and_refuses_who_may_not(host: Host) -> None:
    assert said(host.call("mock_suite", "echo")) == "nothing to say"
    assert said(host.call("mock_suite", "echo", message="hello")) == "hello"
    told = host.failure("mock_suite", action="call", subtool="crash")
    assert told["code"] == "middleware_refused"
    assert told["hint"] == "Ask one of: operator"


def test_over_http_the_holder_of_a_token_is_known_by_name(example: Path) -> None:
    crash = {"name": "mock_suite", "arguments": {"action": "call", "subtool": "crash"}}
    with serving(example, env={"PYTHONPATH": str(EXAMPLE)}) as web:
        anybody = web.initialize().result("tools/call", crash)
        operator = web.initialize(token="the-token-of-the-operator").result("tools/call", crash)
    assert anybody["structuredContent"]["error"]["code"] == "middleware_refused"
    assert operator["structuredContent"]["error"]["code"] == "child_crashed"


def test_progress_passes_through_the_example(host: Host) -> None:
    arguments = {"action": "call", "subtool": "slow", "args": {"seconds": 0.1, "steps": 2}}
    params = {"name": "mock_suite", "arguments": arguments, "_meta": {"progressToken": "p"}}
    assert "result" in host.request("tools/call", params)
    steps = [told.json for told in host.heard if told.json.get("method") == "notifications/progress"]
    assert [step["params"]["progressToken"] for step in steps] == ["p", "p"]


def test_the_commands_of_the_readme_do_what_it_says(example: Path) -> None:
    readme = (EXAMPLE / "README.md").read_text()
    fine, refused = (
        shell.run(example, "call", "mock", tool, PYTHONPATH=str(EXAMPLE)) for tool in ("echo", "crash")
    )
    assert fine.stdout.strip() == "nothing to say"
    assert refused.returncode == 1
    assert fine.stdout in readme
    for line in refused.stderr.strip().splitlines():
        assert line in readme


def test_middleware_that_cannot_be_loaded_is_told_at_the_start(workspace: Path) -> None:
    configure(workspace, {"middleware": ["no_such_module:anything"]})
    ran = shell.run(workspace, "list")
    assert ran.returncode == 2
    assert "middleware[0]: middleware 'no_such_module:anything' cannot be loaded" in ran.stderr


def test_a_server_whose_middleware_cannot_be_loaded_does_not_serve(workspace: Path) -> None:
    configure(workspace, {"middleware": ["no_such_module:anything"]})
    ran = shell.run(workspace)
    assert ran.returncode == 2
    assert "no_such_module" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_limits_and_pages_through_a_real_child(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    limits = {"callsPerMinute": 3, "resultBytes": 2048}
    configure(workspace, {"limits": limits})
    with switchboard(workspace) as host:
        host.initialize()
        text = "0123456789" * 500
        first = host.call("mock_suite", "echo", message=text)
        got, pages = said(first), 1
        rest = first["_meta"]["switchboard/rest"]
        while rest is not None:
            page = host.use("mock_suite", action="call", subtool="echo", cursor=rest["cursor"])
            got += said(page)
            rest = page.get("_meta", {}).get("switchboard/rest")
            pages += 1
        assert (got, pages) == (text, 3)
        host.call("mock_suite", "echo", message="2")
        host.call("mock_suite", "echo", message="3")
        told = host.failure("mock_suite", action="call", subtool="echo")
        assert told["code"] == "rate_limited"
        assert 0 < told["retryAfterMs"] <= 20_000


SLEEPER = """
import asyncio

def factory(options):
    async def sleep_on(call, next):
        await asyncio.sleep(3600)

    return sleep_on
"""


def test_middleware_that_never_ends_does_not_keep_switchboard_alive(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    (workspace / "sleeper.py").write_text(SLEEPER)
    configure(workspace, {"middleware": ["sleeper:factory"]})
    with switchboard(workspace, env={**os.environ, "PYTHONPATH": str(workspace)}) as host:
        host.initialize()
        host.ask("tools/call", {"name": "mock_suite", "arguments": {"action": "call", "subtool": "echo"}})
        assert host.tool_names() == ["mock_suite"]
        host.process.send_signal(signal.SIGTERM)
        host.check_ended_by(signal.SIGTERM)


def test_without_any_of_it_nothing_of_it_is_loaded(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    optional = ("gateway.pipeline", "middleware", "observability.audit")
    modules = loaded(workspace, [*LIST, INTROSPECT, CALL])
    assert not [name for name in modules if name.removeprefix("switchboard_mcp.").startswith(optional)]


def test_with_limits_alone_no_middleware_and_no_cache_is_loaded(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"limits": {"concurrent": 5}})
    modules = loaded(workspace, [*LIST, CALL])
    assert "switchboard_mcp.gateway.pipeline.rate_limit" in modules
    lazy = {
        "gateway.pipeline.plugins",
        "gateway.pipeline.cache",
        "gateway.pipeline.result_paging",
        "observability.audit.audit_log",
    }
    assert not modules & {f"switchboard_mcp.{name}" for name in lazy}
